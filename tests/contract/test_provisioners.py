"""What every provisioner must do, whatever the other side does: Slurm, any command, and the tests' own."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from farhand.provision.command import Command
from farhand.provision.config import Profile, Settings
from farhand.provision.interface import (
    ENDED,
    PENDING,
    RUNNING,
    Asked,
    Order,
    Provisioner,
    SchedulerAway,
    Seen,
    SubmitFailed,
)
from farhand.provision.slurm import provisioner as slurm_module
from farhand.provision.slurm.provisioner import Slurm
from tests.harness.schedulers import FakeProvisioner, Scheduler

pytestmark = pytest.mark.anyio

PROFILE = Profile("gpu", labels=("gpu",), prerun=("true",))
TOKEN = "a-very-secret-token"
IMPATIENT_S = 0.5
PATIENT_S = 3.0  # for a command that hangs beside others that must answer on a busy machine


@dataclass
class Case:
    """A provisioner, and the levers of what is behind it; ``commands`` are its submit, status and cancel."""

    provisioner: Provisioner
    scheduler: Scheduler | None
    fake: FakeProvisioner | None = None
    commands: tuple[str, str, str] = ("submit", "status", "cancel")

    def breaks(self, submit: str = "", status: str = "") -> None:
        if self.fake is not None:
            words = {"full": "error: quota exceeded", "away": "error: away"}
            self.fake.submit_fault, self.fake.status_fault = (
                words.get(submit, submit),
                words.get(status, status),
            )
        if self.scheduler is not None:
            names = dict(zip(self.commands, (submit, status, status), strict=True))
            self.scheduler.faults(**names)

    def let(self, name: str, state: str) -> None:
        if self.fake is not None:
            self.fake.let(name, {"RUNNING": RUNNING}.get(state, ENDED), state)
        if self.scheduler is not None:
            self.scheduler.let(name, state)


def slurm(**fields: object) -> Settings:
    return Settings("slurm", "hpc", (PROFILE,), command_timeout_s=30, **fields)  # type: ignore[arg-type]


def command(scheduler: Scheduler, timeout_s: float = 30) -> Settings:
    words = {what: (str(scheduler.directory / "cloud"), what) for what in ("submit", "status", "cancel")}
    return Settings("command", "cloud", (PROFILE,), command_timeout_s=timeout_s, **words)


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made = Scheduler(tmp_path / "bin")
    monkeypatch.setenv("PATH", made.path)
    return made


@pytest.fixture(params=["slurm", "slurm by ssh", "command", "fake"])
def case(request: pytest.FixtureRequest, scheduler: Scheduler, tmp_path: Path) -> Case:
    of_slurm = ("sbatch", "squeue", "scancel")
    made: dict[str, Callable[[], Case]] = {
        "slurm": lambda: Case(Slurm(slurm(), a_home()), scheduler, commands=of_slurm),
        "slurm by ssh": lambda: Case(Slurm(slurm(login="me@login"), a_home()), scheduler, commands=of_slurm),
        "command": lambda: Case(Command(command(scheduler), tmp_path), scheduler),
        "fake": lambda: Case(fake := FakeProvisioner(), None, fake),
    }
    return made[request.param]()


def a_home() -> Path:
    """A short path, as homes have: what ssh keeps lies below it."""
    return Path(tempfile.mkdtemp(prefix="h-"))


def order(name: str = "hpc-gpu-1") -> Order:
    return Order(name, PROFILE, "https://flows.example.org", TOKEN)


async def test_a_machine_is_submitted_seen_in_every_state_and_given_back(case: Case) -> None:
    id = await case.provisioner.submit(order())
    asked = [Asked("hpc-gpu-1", id), Asked("never-submitted")]
    seen = await case.provisioner.status(asked)
    assert seen.keys() == {"hpc-gpu-1"}
    assert (seen["hpc-gpu-1"].state, seen["hpc-gpu-1"].id) == (PENDING, id)
    assert "PENDING" in seen["hpc-gpu-1"].reason
    case.let("hpc-gpu-1", "RUNNING")
    assert (await case.provisioner.status(asked))["hpc-gpu-1"].state == RUNNING
    assert await case.provisioner.cancel(asked[:1]) == {"hpc-gpu-1"}
    assert (await case.provisioner.status(asked))["hpc-gpu-1"].state == ENDED
    assert await case.provisioner.cancel(asked[:1]) == {"hpc-gpu-1"}, "again is no harm"
    await case.provisioner.close()


@pytest.mark.fault("4.4")
async def test_what_was_accepted_and_never_answered_is_found_and_given_back_by_its_name(case: Case) -> None:
    """B075."""
    case.breaks(submit="accepted")
    with pytest.raises(SubmitFailed, match="imed out"):
        await case.provisioner.submit(order())
    seen = await case.provisioner.status([Asked("hpc-gpu-1")])
    assert (seen["hpc-gpu-1"].state, seen["hpc-gpu-1"].id) == (PENDING, "4242")
    assert await case.provisioner.cancel([Asked("hpc-gpu-1")]) == {"hpc-gpu-1"}
    assert (await case.provisioner.status([Asked("hpc-gpu-1")]))["hpc-gpu-1"].state == ENDED


@pytest.mark.fault("4.6")
async def test_a_refusal_has_the_schedulers_own_words(case: Case) -> None:
    case.breaks(submit="full")
    with pytest.raises(SubmitFailed, match=r"quota exceeded|QOSMaxSubmitJobPerUserLimit"):
        await case.provisioner.submit(order())
    assert await case.provisioner.status([Asked("hpc-gpu-1")]) == {}


@pytest.mark.fault("4.5")
async def test_a_scheduler_that_is_away_says_nothing_of_any_machine(case: Case) -> None:
    """B078: and nothing counts as given back."""
    id = await case.provisioner.submit(order())
    case.breaks(status="away")
    with pytest.raises(SchedulerAway, match=r"away|Unable to contact"):
        await case.provisioner.status([Asked("hpc-gpu-1", id)])
    assert await case.provisioner.cancel([Asked("hpc-gpu-1", id)]) == set()
    case.breaks()
    assert (await case.provisioner.status([Asked("hpc-gpu-1", id)]))["hpc-gpu-1"].state == PENDING


async def test_the_test_of_it_leaves_nothing_behind(case: Case) -> None:
    checks = await case.provisioner.test(order(), submit=False)
    assert [check for check in checks if not check.ok] == []
    assert await case.provisioner.status([Asked("hpc-gpu-1")]) == {}


async def test_neither_the_token_nor_a_long_prerun_is_an_argument(case: Case) -> None:
    """B081: no limit on the length of a command is met."""
    lines = tuple(f"module load package-{number}" for number in range(200))
    await case.provisioner.submit(replace(order(), profile=replace(PROFILE, prerun=lines)))
    if case.scheduler is not None:
        calls = (case.scheduler.directory / "calls").read_text()
        assert TOKEN not in calls
        assert all(len(line) < 1024 for line in calls.splitlines())


# ---------------------------------------------------------------- what only processes can do


async def ticks(turns: list[float]) -> None:
    """What else a server has to do: a loop that is held up does none of it."""
    while True:
        turns.append(time.monotonic())
        await asyncio.sleep(IMPATIENT_S / 20)


@pytest.mark.fault("4.1")
@pytest.mark.parametrize("what", ["ssh", "sbatch", "squeue"])
async def test_what_hangs_is_ended_in_time_and_named(what: str, scheduler: Scheduler, tmp_path: Path) -> None:
    """B074: and the server goes on meanwhile."""
    settings = Settings("slurm", "hpc", (PROFILE,), login="me@login", command_timeout_s=IMPATIENT_S)
    provisioner = Slurm(settings, a_home())
    scheduler.faults(**{what: "hang"})
    began = time.monotonic()
    ticking = asyncio.create_task(ticks(turns := []))
    said = ""
    try:
        await provisioner.submit(order())
    except SubmitFailed as error:
        said = str(error)
    try:
        await provisioner.status([Asked("hpc-gpu-1")])
    except SchedulerAway as error:
        said = said or str(error)
    assert "on me@login did not end within 0.5 s" in said
    assert time.monotonic() - began < 60
    ticking.cancel()
    assert len(turns) > 2
    await provisioner.close()


@pytest.mark.fault("4.2")
async def test_an_ssh_that_would_ask_for_a_password_fails_at_once_and_says_so(scheduler: Scheduler) -> None:
    provisioner = Slurm(slurm(login="me@login"), a_home())
    scheduler.faults(ssh="password")
    with pytest.raises(SubmitFailed, match=r"ssh to me@login failed: .*Permission denied"):
        await provisioner.submit(order())
    (words,) = scheduler.calls("ssh")
    assert words[:2] == ["-o", "BatchMode=yes"]


@pytest.mark.fault("4.3")
async def test_banners_of_a_login_shell_are_passed_over(scheduler: Scheduler) -> None:
    provisioner = Slurm(slurm(login="me@login"), a_home())
    scheduler.faults(ssh="banner")
    assert await provisioner.submit(order()) == "4242"
    assert (await provisioner.status([Asked("hpc-gpu-1", "4242")]))["hpc-gpu-1"].reason == "PENDING: Priority"


async def test_a_wrapper_without_parsable_and_an_id_with_its_cluster(scheduler: Scheduler) -> None:
    """B072: the wrapper is asked once only."""
    provisioner = Slurm(slurm(), a_home())
    scheduler.faults(sbatch="no_parsable")
    assert await provisioner.submit(order()) == "4242"
    assert await provisioner.submit(order("hpc-gpu-2")) == "4243"
    assert scheduler.calls("sbatch") == [["--parsable"], [], []]
    other = Slurm(slurm(), a_home())
    scheduler.faults(sbatch="cluster")
    assert await other.submit(order("hpc-gpu-3")) == "4244;alpha"
    await other.cancel([Asked("hpc-gpu-3", "4244;alpha")])
    assert scheduler.calls("scancel")[-1] == ["--clusters=alpha", "4244"]


async def test_one_squeue_asks_for_all_and_scancel_comes_in_pieces(scheduler: Scheduler) -> None:
    """B078, B085: 120 machines are one question, and three orders of fifty at most."""
    provisioner = Slurm(slurm(), a_home())
    asked = [Asked(f"hpc-gpu-{n}", str(n)) for n in range(120)]
    jobs = {machine.id: [machine.name, "RUNNING", "None"] for machine in asked}
    (scheduler.directory / "jobs").write_text(json.dumps(jobs))
    assert len(await provisioner.status(asked)) == 120
    assert len(scheduler.calls("squeue")) == 1
    assert len(await provisioner.cancel(asked)) == 120
    assert [len(words) for words in scheduler.calls("scancel")] == [50, 50, 20]


async def test_machines_whose_ids_are_unknown_are_looked_up_at_once_and_given_back_in_pieces(
    scheduler: Scheduler,
) -> None:
    """B085: as a stop finds them whose submissions were cut off. What is not in the queue is no machine."""
    provisioner = Slurm(slurm(), a_home())
    jobs = {str(n): [f"hpc-gpu-{n}", "PENDING", "Priority"] for n in range(1, 71)}
    jobs["99"] = ["somebody-elses", "RUNNING", "None"]
    (scheduler.directory / "jobs").write_text(json.dumps(jobs))
    asked = [Asked(f"hpc-gpu-{n}") for n in range(1, 81)]
    assert len(await provisioner.cancel(asked)) == 80
    assert (len(scheduler.calls("squeue")), len(scheduler.calls("scancel"))) == (1, 2)
    assert [job[0] for job in scheduler.jobs().values() if job[1] != "CANCELLED"] == ["somebody-elses"]
    scheduler.faults(scancel="away")
    assert await provisioner.cancel([Asked("somebody-elses")]) == set()


async def test_a_second_job_under_one_name_is_cancelled(scheduler: Scheduler) -> None:
    """B075: an earlier submission came through after all."""
    provisioner = Slurm(slurm(), a_home())
    await provisioner.submit(order())
    await provisioner.submit(order())
    assert (await provisioner.status([Asked("hpc-gpu-1", "4243")]))["hpc-gpu-1"].id == "4242"
    assert scheduler.jobs()["4243"][1] == "CANCELLED"


@pytest.mark.fault("4.9")
async def test_what_was_preempted_is_waited_for_a_little_and_has_ended_then(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    provisioner = Slurm(slurm(), a_home())
    await provisioner.submit(order())
    scheduler.let("hpc-gpu-1", "PREEMPTED")
    asked = Asked("hpc-gpu-1", "4242")
    assert (await provisioner.status([asked]))["hpc-gpu-1"].state == PENDING
    monkeypatch.setattr(slurm_module, "_PREEMPTED_S", -1.0)
    assert (await provisioner.status([asked]))["hpc-gpu-1"] == Seen(ENDED, "PREEMPTED", "4242")
    scheduler.let("hpc-gpu-1", "PENDING", "BeginTime")
    assert (await provisioner.status([asked]))["hpc-gpu-1"].state == PENDING


@pytest.mark.parametrize("accounting", ["", "away", "hang"])
async def test_a_job_that_slurm_has_forgotten_is_none(scheduler: Scheduler, accounting: str) -> None:
    """The controller says so; accounting that is off, away or slow takes nothing from that."""
    scheduler.faults(sacct=accounting)
    settings = replace(slurm(), command_timeout_s=PATIENT_S) if accounting == "hang" else slurm()
    provisioner = Slurm(settings, a_home())
    assert await provisioner.status([Asked("hpc-gpu-1", "7")]) == {}
    await provisioner.close()


@pytest.mark.parametrize("command", ["squeue", "scontrol"])
async def test_a_controller_that_does_not_answer_has_forgotten_nothing(
    scheduler: Scheduler, command: str
) -> None:
    scheduler.faults(**{command: "away"})
    provisioner = Slurm(slurm(), a_home())
    with pytest.raises(SchedulerAway, match="Unable to contact slurm controller"):
        await provisioner.status([Asked("hpc-gpu-1", "7")])
    await provisioner.close()


async def test_a_command_that_answers_nonsense_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "nonsense"
    script.write_text('#!/bin/bash\necho \'{"machines": {"m": {"state": "odd"}}}\'\n')
    script.chmod(0o755)
    words = (str(script),)
    settings = Settings("command", "cloud", (PROFILE,), submit=words, status=words, cancel=words)
    with pytest.raises(SubmitFailed, match="answered what is not expected"):
        await Command(settings, tmp_path).submit(order())
    with pytest.raises(SchedulerAway, match="none of pending, running, ended"):
        await Command(settings, tmp_path).status([Asked("m")])
    missing = Settings("command", "cloud", (PROFILE,), submit=("/no/such",), status=words, cancel=words)
    with pytest.raises(SubmitFailed, match="cannot be started"):
        await Command(missing, tmp_path).submit(order())
