"""Machines from a real Slurm, through a real ssh."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from farhand_worker.protocol import Times
from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually
from tests.lab.netns import SERVER, WORKER, Network, network
from tests.lab.slurm import Slurm, cluster
from tests.lab.sshd import Sshd, login_node

LOGIN_OUTSIDE, LOGIN_INSIDE = "10.213.1.1", "10.213.2.1"

FLOWS = """\
import os
import time
from pathlib import Path

from farhand import flow, task


@task(device="cluster")
def there() -> str:
    return os.environ["SLURM_JOB_ID"]


@flow(runs_on="server")
def visit() -> str:
    return there()


@task(device="cluster")
def bulk(size: int) -> str:
    return "x" * size


@flow(runs_on="server")
def fetch(size: int) -> int:
    return len(bulk(size))


@task
def step(path: str, number: int) -> int:
    with open(path, "a") as file:
        file.write(f"{number} {os.environ['SLURM_JOB_ID']}\\n")
    return number


@flow(device="cluster")
def climb(path: str, gate: str) -> int:
    first = step(path, 1)
    while not Path(gate).exists():
        time.sleep(0.02)
    return first + step(path, 2)
"""


class Lab:
    """A server whose project asks a Slurm for machines."""

    def __init__(self, directory: Path, slurm: Slurm, sshd: Sshd) -> None:
        self.slurm = slurm
        self.project = directory / "project"
        self.project.mkdir()
        (self.project / "flows.py").write_text(FLOWS)
        self.sshd = sshd
        self.deployment = Deployment(directory, project=self.project, parallel=1, times=Times().scaled(0.5))

    def configure(self, **fields: Any) -> None:
        """Write provisioners.json."""
        profile = {
            "name": "small",
            "labels": ["cluster"],
            "cpus": 1,
            "sbatch": ["--partition=main", "--mem=200M"],
            "prerun": [f"cd {self.project}", "export FROM_PRERUN='it was run'"],
            "worker": [sys.executable, "-m", "farhand_worker"],
        }
        profile.update(fields.pop("profile", {}))
        profile["sbatch"] = [*profile["sbatch"], f"--chdir={self.project.parent}"]
        settings = {
            "type": "slurm",
            "name": "hpc",
            "login": self.sshd.login,
            "ssh_key": str(self.sshd.key),
            "ssh_options": self.sshd.options,
            "engine_url": self.deployment.url,
            "max_idle_s": 2,
            "poll_s": 0.6,
            "profiles": [profile],
            **fields,
        }
        settings = {name: value for name, value in settings.items() if value is not None}
        (self.project / "provisioners.json").write_text(json.dumps([settings]))

    def close(self) -> None:
        """Stop the server in order, which ends its ssh connections, then clear away what is left."""
        server = self.deployment.server
        if server.process is not None and server.process.poll() is None:
            server.send(signal.SIGTERM)
            server.wait(60)
        self.deployment.clear()

    def outstanding(self) -> list[dict[str, Any]]:
        """The machines that have not ended, as the API shows them."""
        return self.deployment.get("/workers/resources")["provisions"]["machines"]

    def trouble(self) -> str:
        """What last went wrong with the provisioner."""
        return self.deployment.get("/provisioners")["provisioners"][0]["trouble"]

    def ended_reasons(self) -> list[str]:
        """Why the machines that ended last did."""
        return [
            m["reason"] for m in self.deployment.get("/provisioners")["machines"] if m["state"] == "ended"
        ]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def lab(tmp_path: Path, slurm: Slurm) -> Iterator[Lab]:
    """A server, not started yet, and a login node; what a test leaves in Slurm is cancelled."""
    with ExitStack() as stack:
        sshd = stack.enter_context(login_node(tmp_path / "sshd", slurm.environment))
        made = Lab(tmp_path, slurm, sshd)
        stack.callback(lambda: eventually(lambda: not slurm.ask("squeue", "-h"), 20, "no job is left"))
        stack.callback(lambda: [slurm.ask("scancel", id) for id, _, _ in slurm.jobs()])
        stack.callback(made.close)
        yield made


def test_a_machine_comes_from_the_queue_runs_what_waited_for_it_idles_out_and_is_given_back(lab: Lab) -> None:
    lab.configure()
    deployment = lab.deployment.start()
    run_id = deployment.start_run("visit")
    (machine,) = eventually(lab.outstanding, what="a machine is asked for")
    run = deployment.wait_for_run(run_id, "completed")
    (job,) = [job for job in lab.slurm.jobs("all") if job[1] == machine["name"]]
    assert run["result"] == job[0]
    eventually(lambda: not lab.outstanding(), what="the machine is given back")
    assert lab.slurm.jobs() == []
    ended = deployment.get("/provisioners")["machines"][0]
    assert (ended["state"], ended["reason"]) == ("ended", "COMPLETED")


def begun(lab: Lab, directory: Path) -> tuple[str, str]:
    """A run on a machine, beyond its first checkpoint: its id, and the Slurm job."""
    deployment = lab.deployment
    run_id = deployment.start_run("climb", path=str(directory / "steps"), gate=str(directory / "gate"))
    deployment.wait_for_run(run_id, "running", within_s=60)
    (first,) = eventually(lambda: steps(directory), what="the first step is done")
    return run_id, first[1]


def steps(directory: Path) -> list[list[str]]:
    path = directory / "steps"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def goes_on(lab: Lab, directory: Path, run_id: str) -> tuple[dict[str, Any], list[list[str]]]:
    """The run once it has completed; its first step was not executed again, and no budget was used."""
    eventually(lambda: len(lab.deployment.attempts(run_id)) == 2, 60, "there is another attempt")
    (directory / "gate").write_text("")
    run = lab.deployment.wait_for_run(run_id, "completed", within_s=60)
    done = steps(directory)
    assert [number for number, _ in done] == ["1", "2"]
    (job,) = [attempt for attempt in lab.deployment.attempts(run_id) if attempt["number"] == 2]
    assert job["outcome"] == "completed"
    return run, done


@pytest.mark.fault("4.8")
@pytest.mark.parametrize("how", [["scancel"], ["scancel", "--batch", "--signal=TERM"]])
def test_a_job_that_its_user_cancels_gives_its_run_back_from_the_checkpoint(
    lab: Lab, tmp_path: Path, how: list[str]
) -> None:
    """B084: SIGTERM comes to every process at once, or to the worker alone; it counts as no crash."""
    lab.configure()
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    lab.slurm.ask(*how, job)
    _, done = goes_on(lab, tmp_path, run_id)
    assert [where for _, where in done] == [job, str(int(job) + 1)]
    assert lab.deployment.attempts(run_id)[0]["outcome"] == "stopped"


@pytest.mark.fault("4.9")
def test_a_job_that_slurm_requeues_is_the_same_machine_again(lab: Lab, tmp_path: Path) -> None:
    lab.configure()
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    (machine,) = lab.outstanding()
    lab.slurm.ask("scontrol", "requeue", job)
    eventually(lambda: lab.outstanding()[0]["state"] == "pending", what="it is back in the queue")
    # In the second in which the job's credential was revoked Slurm refuses to start it: not what is tried.
    lab.slurm.ask("scontrol", "update", f"jobid={job}", "StartTime=now+2")
    _, done = goes_on(lab, tmp_path, run_id)
    assert [where for _, where in done] == [job, job]
    assert [seen["name"] for seen in lab.outstanding()] == [machine["name"]]


@pytest.mark.fault("4.9")
@pytest.mark.parametrize(("partition", "same"), [("spot", True), ("scrap", False)])
def test_a_machine_that_is_preempted_gives_its_run_back_and_the_same_or_another_goes_on(
    lab: Lab, tmp_path: Path, partition: str, same: bool
) -> None:
    """One partition puts what it preempts back into the queue, one cancels it."""
    lab.configure(profile={"sbatch": [f"--partition={partition}", "--mem=200M"]})
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    (machine,) = lab.outstanding()
    urgent = ["--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600"]
    taken = lab.slurm.ask("sbatch", "--parsable", *urgent)
    eventually(lambda: (taken, "RUNNING") in [(id, s) for id, _, s in lab.slurm.jobs()], 60, "it is taken")
    eventually(lambda: [m for m in lab.outstanding() if m["state"] == "pending"], 60, "one is waited for")
    first = lab.deployment.attempts(run_id)[0]
    assert first["outcome"] == "stopped", first["message"]
    lab.slurm.ask("scancel", taken)
    lab.slurm.ask("scontrol", "update", f"jobid={job}", "StartTime=now+2")  # else Slurm holds it for minutes
    _, done = goes_on(lab, tmp_path, run_id)
    assert (done[1][1] == job, [seen["name"] for seen in lab.outstanding()] == [machine["name"]]) == (
        same,
        same,
    )
    assert any(reason.startswith("PREEMPTED") for reason in lab.ended_reasons()) is not same


@pytest.mark.fault("4.9")
def test_a_signal_that_slurm_sends_some_time_before_the_end_gives_a_run_back_in_time(
    lab: Lab, tmp_path: Path
) -> None:
    """By Slurm's own timer, long before the worker itself would leave, which knows when its time is up."""
    options = ["--partition=main", "--mem=200M", "--time=2", "--signal=B:TERM@100"]
    lab.configure(profile={"sbatch": options})
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    at_work = lab.deployment.attempts(run_id)[0]["worker"]  # others may be coming, or going yet
    worker = lab.deployment.get(f"/workers/{at_work}")
    eventually(lambda: len(lab.deployment.attempts(run_id)) == 2, 90, "Slurm has sent its signal")
    first = lab.deployment.attempts(run_id)[0]
    assert first["outcome"] == "stopped"
    assert worker["reported"]["ends_at"] - first["ended_at"] > 65
    _, done = goes_on(lab, tmp_path, run_id)
    assert done[1][1] != job


@pytest.mark.fault("4.13")
def test_a_server_killed_while_a_machine_is_pending_goes_on_with_it(lab: Lab) -> None:
    lab.configure(profile={"sbatch": ["--partition=main", "--mem=200M", "--begin=now+3600"]})
    deployment = lab.deployment.start()
    run_id = deployment.start_run("visit")
    eventually(lambda: [m for m in lab.outstanding() if m["state"] == "pending"], what="it is pending")
    (machine,) = lab.outstanding()
    eventually(lambda: "Slurm job" in str(deployment.get(f"/runs/{run_id}/why")["calls"]), what="why says so")
    deployment.server.kill()
    deployment.restart()
    assert [m["name"] for m in lab.outstanding()] == [machine["name"]]
    lab.slurm.ask("scontrol", "update", f"jobid={machine['job'].split()[-1]}", "StartTime=now")
    deployment.wait_for_run(run_id, "completed", within_s=60)
    assert len([job for job in lab.slurm.jobs("all") if job[1].startswith(machine["name"][:9])]) >= 1


@pytest.mark.fault("4.5")
def test_a_controller_that_is_away_loses_no_machine(lab: Lab, tmp_path: Path) -> None:
    lab.configure(command_timeout_s=3)
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    lab.slurm.end("slurmctld")
    said = "Unable to contact slurm controller|did not end within|Connection refused"
    eventually(lambda: re.search(said, lab.trouble()), 60, "the error is shown")
    assert lab.outstanding()[0]["state"] == "attached"
    lab.slurm.start_controller()
    eventually(lambda: lab.trouble() == "", 90, "all is well again")
    (tmp_path / "gate").write_text("")
    lab.deployment.wait_for_run(run_id, "completed")
    assert [where for _, where in steps(tmp_path)] == [job, job]


@pytest.mark.fault("4.7")
def test_the_node_of_a_machine_dies_and_its_run_goes_on_elsewhere(lab: Lab, tmp_path: Path) -> None:
    lab.configure(profile={"sbatch": ["--mem=200M", "--no-requeue", "--partition=main"]})
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    node = lab.slurm.ask("squeue", "-h", "-j", job, "-o", "%N")
    lab.slurm.kill_node(node, job)
    lab.slurm.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=dead")
    try:
        said = "lost machine 1 of 5 that cost nothing: worker went away mid-call"
        why = f"/runs/{run_id}/why"
        eventually(lambda: said in lab.deployment.get(why)["message"], 60, "it counts as no crash")
        _, done = goes_on(lab, tmp_path, run_id)
        assert done[1][1] != job
        assert any(reason.startswith("NODE_FAIL") for reason in lab.ended_reasons())
    finally:
        lab.slurm.start_node(node)


def test_prerun_that_fails_is_told_and_provisioners_test_says_it(lab: Lab) -> None:
    lab.configure()
    deployment = lab.deployment.start()
    checks = deployment.post("/provisioners/hpc/test", {"submit": True})["items"]
    assert [check["ok"] for check in checks] == [True] * 4
    assert checks[-1]["said"].endswith("COMPLETED")
    lab.configure(profile={"sbatch": ["--partition=gpu", "--mem=200M", "--time=02:00:00"]}, max_idle_s=4)
    eventually(
        lambda: deployment.get("/provisioners")["provisioners"][0]["max_idle_s"] == 4, what="it is taken"
    )
    long = deployment.post("/provisioners/hpc/test", {"submit": True})["items"]
    assert not long[-1]["ok"], "more time than the partition gives"
    assert "PartitionTimeLimit" in long[-1]["said"]
    lab.configure(profile={"prerun": ["module load cuda/99"]}, max_idle_s=3)
    eventually(
        lambda: deployment.get("/provisioners")["provisioners"][0]["max_idle_s"] == 3, what="it is taken"
    )
    run_id = deployment.start_run("visit")
    said = "prerun failed: line 1: module load cuda/99"
    eventually(lambda: said in lab.trouble(), 60, "what went wrong is shown")
    assert said in str(deployment.get(f"/runs/{run_id}/why")["calls"])


@pytest.mark.fault("4.9")
def test_before_its_time_is_up_a_machine_is_drained_and_its_run_goes_on_elsewhere(
    lab: Lab, tmp_path: Path
) -> None:
    """B083: the worker knows the end of its allocation, and is gone before it."""
    lab.configure(profile={"prerun": ["export SLURM_JOB_END_TIME=$(($(date +%s) + 24))"]})
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    ends = lab.deployment.items("/workers")
    assert next(w["reported"]["ends_at"] for w in ends if w["name"].startswith("hpc-")) > time.time()
    eventually(lambda: len(lab.deployment.attempts(run_id)) == 2, 60, "its engines are ended in time")
    assert lab.deployment.attempts(run_id)[0]["outcome"] == "stopped"
    eventually(lambda: job not in [id for id, _, _ in lab.slurm.jobs()], 30, "the job has ended by itself")
    assert (job, "COMPLETED") in [(id, state) for id, _, state in lab.slurm.jobs("all")]
    goes_on(lab, tmp_path, run_id)


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lab, Network]]:
    """A server on one host, a cluster behind its login node on another: no packet passes from there to it."""
    monkeypatch.setenv("WITNESS_MARK", str(tmp_path))
    with ExitStack() as stack:
        net = stack.enter_context(network())
        net.cut()
        places = {"controller": "router", "node": "worker"}
        far = {"controller": LOGIN_INSIDE, "node": WORKER, "place": lambda what: net.inside(places[what])}
        slurm = stack.enter_context(cluster(tmp_path / "slurm", **far))
        with net.inside("router"):
            sshd = stack.enter_context(login_node(tmp_path / "sshd", slurm.environment, LOGIN_OUTSIDE))
        stack.enter_context(net.inside("server"))
        made = Lab(tmp_path, slurm, sshd)
        stack.callback(lambda: eventually(lambda: not slurm.ask("squeue", "-h"), 20, "no job is left"))
        stack.callback(lambda: [slurm.ask("scancel", id) for id, _, _ in slurm.jobs()])
        stack.callback(made.close)
        yield made, net


def test_a_cluster_without_a_route_to_the_server_works_through_its_login_node(
    hidden: tuple[Lab, Network], tmp_path: Path
) -> None:
    """Runs, files, and a relay that is killed in mid-run: the same attempt goes on by the next one.

    The nodes do not see the home of the login node: the relay is found by its address alone.
    """
    lab, net = hidden
    (tmp_path / "home").mkdir()
    python = [sys.executable, "-m", "farhand_worker"]
    elsewhere = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none "$0" && exec "$@"',
        f"{tmp_path}/home",
    ]
    relay = {"relay": ["env", f"HOME={tmp_path}/home", *python], "relay_host": LOGIN_INSIDE}
    profile = {"worker": [*elsewhere, *python]}
    lab.configure(route="ssh", engine_url=None, max_idle_s=30, profile=profile, **relay)
    deployment = lab.deployment.start()
    with net.inside("worker"), pytest.raises(OSError, match=r"unreachable|timed out"):
        socket.create_connection((SERVER, deployment.port), 1)
    run_id = deployment.start_run("fetch", size=3_000_000)
    assert deployment.wait_for_run(run_id, "completed", within_s=90)["result"] == 3_000_000
    assert lab.trouble() == ""
    run_id, job = begun(lab, tmp_path)
    for process in psutil.Process(deployment.server.pid).children(recursive=True):
        if process.name() == "ssh" and "relay" in process.cmdline()[-1]:
            process.kill()
    eventually(lambda: "the relay" in lab.trouble(), what="it is shown")
    eventually(lambda: lab.trouble() == "", 30, "another has taken its place")
    (tmp_path / "gate").write_text("")
    deployment.wait_for_run(run_id, "completed", within_s=60)
    assert [where for _, where in steps(tmp_path)] == [job, job]
    assert len(deployment.attempts(run_id)) == 1
