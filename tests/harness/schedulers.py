"""Schedulers that do as they are told: Slurm's commands and an ssh in a directory, and a script of any kind.

One program stands behind all of them, and keeps its jobs in a file. What it is to get wrong is in another:
`Scheduler.faults`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farhand.engine.machines import Check
from farhand.provision.interface import Asked, Order, SchedulerAway, Seen, SubmitFailed

SLURM_COMMANDS = ("ssh", "sbatch", "squeue", "scancel", "scontrol", "sacct")

PROGRAM = """\
#!{python} -SE
import json, os, re, sys, time
here = {directory!r}
def load(name, otherwise):
    try:
        with open(os.path.join(here, name)) as file:
            return json.load(file)
    except FileNotFoundError:
        return otherwise
def store(jobs):
    with open(os.path.join(here, "jobs.new"), "w") as file:
        json.dump(jobs, file)
    os.replace(os.path.join(here, "jobs.new"), os.path.join(here, "jobs"))
def fail(words, code=1):
    sys.stderr.write(words + "\\n")
    sys.exit(code)
command, words = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(os.path.join(here, "calls"), "a") as file:
    file.write(json.dumps([command, *words]) + "\\n")
faults = load("faults", {{}})
fault = faults.get(command, "")
if fault == "hang":
    time.sleep(600)
if fault == "away":
    fail(command + ": error: Unable to contact slurm controller (connect failure)")
if command == "ssh":
    if fault == "password":
        fail("me@login: Permission denied (publickey,password).", 255)
    if "-O" in words:
        sys.exit(0)
    if fault == "banner":
        print("*** Welcome to HPC ***\\nquota 80|used|of|all")
        sys.stderr.write("Authorized use only\\n")
        sys.stdout.flush()
    os.execvp("bash", ["bash", "-c", words[-1]])
jobs = load("jobs", {{}})
def named():
    for word in words:
        if word.startswith("--name="):
            return word[len("--name="):].split(",")
    return []
if command == "sbatch":
    script = sys.stdin.read()
    if fault == "no_parsable" and "--parsable" in words:
        fail("sbatch: unrecognized option '--parsable'")
    if fault == "full":
        fail("sbatch: error: QOSMaxSubmitJobPerUserLimit\\n"
             "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy")
    name = re.search(r"--job-name=(\\S+)", script)[1]
    if "--test-only" in words:
        fail("sbatch: Job 1 to start at 2030-01-01", 0)
    number = str(4242 + len(jobs))
    jobs[number] = [name, "PENDING", "Priority"]
    store(jobs)
    if fault == "accepted":
        fail("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    print(number + ";alpha" if fault == "cluster" else
          number if "--parsable" in words else "Submitted batch job " + number)
elif command == "squeue":
    for number, (name, state, reason) in jobs.items():
        if name in named():
            print("|".join((number, state, name, reason)))
elif command == "scancel":
    if fault == "lazy":
        sys.exit(0)
    if fault == "slow":
        time.sleep(0.2)
    for number, job in jobs.items():
        if number in words or job[0] in named():
            job[1:] = ["CANCELLED", "None"]
    store(jobs)
elif command == "scontrol":
    fail("slurm_load_jobs error: Invalid job id specified")
elif command == "sacct":
    fail("Slurm accounting storage is disabled")
else:
    asked = json.load(sys.stdin)
    what = words[0]
    if faults.get(what) == "away":
        fail(what + ": error: the cloud is away")
    if faults.get(what) == "hang":
        time.sleep(600)
    if what == "submit":
        if faults.get("submit") == "full":
            fail("error: quota exceeded")
        number = str(4242 + len(jobs))
        jobs[number] = [asked["name"], "PENDING", "Priority"]
        store(jobs)
        if faults.get("submit") == "accepted":
            fail("error: timed out")
        print(json.dumps({{"id": number}}))
    if what == "status":
        states = {{"PENDING": "pending", "RUNNING": "running"}}
        found = {{job[0]: {{"state": states.get(job[1], "ended"), "reason": job[1], "id": number}}
                 for number, job in jobs.items() if job[0] in [m["name"] for m in asked["machines"]]}}
        print(json.dumps({{"machines": found}}))
    if what == "cancel":
        names = [machine["name"] for machine in asked["machines"]]
        for job in jobs.values():
            if job[0] in names:
                job[1:] = ["CANCELLED", "None"]
        store(jobs)
        print(json.dumps({{"cancelled": names}}))
"""


class Scheduler:
    """The programs in ``directory``, for a PATH, and the jobs behind them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        program = PROGRAM.format(python=sys.executable, directory=str(directory))
        for name in (*SLURM_COMMANDS, "cloud"):
            (directory / name).write_text(program)
            (directory / name).chmod(0o755)

    @property
    def path(self) -> str:
        """A PATH on which its programs come first."""
        return f"{self.directory}:{os.environ['PATH']}"

    def faults(self, **faults: str) -> None:
        """What each command gets wrong from now on."""
        (self.directory / "faults").write_text(json.dumps(faults))

    def jobs(self) -> dict[str, list[str]]:
        """Id → name, state, reason."""
        path = self.directory / "jobs"
        return json.loads(path.read_text()) if path.exists() else {}

    def let(self, name: str, state: str, reason: str = "None") -> None:
        """Put the jobs of a name into a state."""
        jobs = {id: [job[0], state, reason] if job[0] == name else job for id, job in self.jobs().items()}
        (self.directory / "jobs").write_text(json.dumps(jobs))

    def calls(self, command: str) -> list[list[str]]:
        """The arguments of every call of a command."""
        path = self.directory / "calls"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [words for name, *words in calls if name == command]


@dataclass
class FakeProvisioner:
    """One without processes, for tests of what works with provisioners."""

    interval_s: float = 0.02
    jobs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    orders: list[Order] = field(default_factory=list[Order])
    cancelled: list[str] = field(default_factory=list[str])
    submit_fault: str = ""
    status_fault: str = ""
    deaf: bool = False
    closed: bool = False

    async def submit(self, order: Order) -> str:
        self.orders.append(order)
        if self.submit_fault and self.submit_fault != "accepted":
            raise SubmitFailed(self.submit_fault)
        self.jobs[order.name] = [f"{4242 + len(self.jobs)}", "pending", "PENDING: Priority"]
        if self.submit_fault:
            raise SubmitFailed("error: Socket timed out")
        return self.jobs[order.name][0]

    async def status(self, asked: Sequence[Asked]) -> Mapping[str, Seen]:
        if self.status_fault:
            raise SchedulerAway(self.status_fault)
        found = {machine.name: self.jobs.get(machine.name) for machine in asked}
        return {name: Seen(job[1], job[2], job[0]) for name, job in found.items() if job is not None}

    async def cancel(self, asked: Sequence[Asked]) -> set[str]:
        if self.deaf or self.status_fault:
            return set()
        for machine in asked:
            self.cancelled.append(machine.name)
            if machine.name in self.jobs:
                self.jobs[machine.name][1:] = ["ended", "CANCELLED"]
        return {machine.name for machine in asked}

    async def test(self, order: Order, submit: bool) -> list[Check]:
        return [Check(f"try {order.profile.name}", True, "submitted" if submit else "")]

    async def close(self) -> None:
        self.closed = True

    def let(self, name: str, state: str, reason: str = "") -> None:
        """Put a machine into a state."""
        self.jobs[name][1:] = [state, reason or state.upper()]

    def has(self) -> dict[str, Any]:
        """Name → state of what has not ended."""
        return {name: job[1] for name, job in self.jobs.items() if job[1] != "ended"}
