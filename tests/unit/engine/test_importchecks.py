"""Import checks: asked before a job is handed over, remembered for as long as they hold, never a slot."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from farhand.engine import importchecks
from farhand.errors import StaleLease
from farhand.model import Ask, Job
from farhand_worker import protocol
from tests.unit.engine.records import Clock, FakeLink, a_hello, a_job
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio

CODE = "sha256:" + "7" * 64
ERROR = {"type": "ModuleNotFoundError", "module": "builtins", "message": "no torch", "traceback": ""}
OK = protocol.Result("completed", 3.0)
MISSING = protocol.Result("failed", 3.0, "import", "no module named torch", error=ERROR)
SLOW = protocol.Result("failed", 3.0, "timeout", "took longer than 300 s")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(importchecks, "time", clock)
    return clock


def checks(link: FakeLink) -> list[protocol.Assign]:
    return [assign for assign in link.of(protocol.Assign) if assign.kind == protocol.IMPORT]


def handed(link: FakeLink) -> list[str]:
    return [assign.job for assign in link.of(protocol.Assign) if assign.kind != protocol.IMPORT]


async def answer(world: World, link: FakeLink, *events: Any, environment: str = "env-1") -> None:
    """The latest check ends with ``events``, and the dispatcher looks again."""
    check = checks(link)[-1]
    started = protocol.Started(2.0, 1, "3.11", environment=environment)
    lines = [[event.kind, msgspec.to_builtins(event)] for event in (started, *events)]
    sender = next((member.name for member in world.fleet if member.link is link), "box")
    event = protocol.Event(check.job, check.lease, "engine", 1, lines)
    (seq,) = await world.reports.record_all([event], sender)
    assert seq == 1 + len(events)
    await world.hand_over()


async def waiting(world: World, **fields: Any) -> tuple[FakeLink, Job]:
    """A worker, and a job that waits for what it has to say about its imports."""
    _, link = await world.attach()
    job = await world.start_run(fingerprint=CODE, **fields)
    await world.hand_over()
    return link, job


def reason(world: World, job: Job) -> str:
    found = world.queue.waiting(job.id)
    assert found is not None
    return ", ".join(f"{each.worker} {each.code}" for each in found.refusals)


async def test_a_job_is_handed_over_when_its_imports_were_checked_there(world: World) -> None:
    link, job = await waiting(world)
    (check,) = checks(link)
    assert (check.entry, check.bundle, check.fingerprint, check.run) == (job.entry, job.bundle, CODE, "")
    assert check.timeout_s == 300
    assert world.fleet.member("box").busy == 0, "it takes no slot"
    assert reason(world, job) == "box import_check"
    await world.hand_over()
    assert len(checks(link)) == 1, "it is under way already"
    await answer(world, link, OK)
    assert handed(link) == [job.id]
    again = await world.start_run(fingerprint=CODE)
    await world.hand_over()
    assert handed(link) == [job.id, again.id]
    assert len(checks(link)) == 1, "what is known is not asked again"


async def test_each_module_and_each_fingerprint_is_checked_for_itself(world: World) -> None:
    link, _ = await waiting(world)
    await answer(world, link, OK)
    await world.start_run(fingerprint=CODE, entry="other:task")
    await world.start_run(fingerprint="sha256:" + "8" * 64)
    await world.hand_over()
    assert len(checks(link)) == 3


async def test_what_the_server_has_inspected_needs_no_check_on_its_own_processors(world: World) -> None:
    world.imports.inspected([CODE])
    _, link = await world.attach(a_hello("server"))
    job = await world.start_run(fingerprint=CODE)
    await world.hand_over()
    assert (handed(link), checks(link)) == ([job.id], [])


async def test_a_missing_module_ends_the_run_once_no_worker_is_left(world: World) -> None:
    link, job = await waiting(world)
    await answer(world, link, MISSING)
    run = await world.run_of(job)
    assert (run.state, run.reason, run.error) == ("failed", "import", ERROR)
    assert run.message == "box cannot import weather: no module named torch"
    assert handed(link) == []


async def test_another_worker_is_tried_before_the_run_fails(world: World) -> None:
    link, job = await waiting(world)
    _, other = await world.attach(a_hello("other", instance="i2"))
    await world.hand_over()
    await answer(world, link, MISSING)
    assert (await world.run_of(job)).state == "queued"
    assert reason(world, job) == "box code_missing, other import_check"
    await answer(world, other, OK)
    assert handed(other) == [job.id]


async def test_a_module_that_imports_slowly_is_not_a_missing_one(world: World, clock: Clock) -> None:
    link, job = await waiting(world)
    await answer(world, link, SLOW)
    assert (await world.run_of(job)).state == "queued"
    assert reason(world, job) == "box import_slow"
    clock.now += 31
    await world.hand_over()
    assert len(checks(link)) == 2


async def test_a_negative_is_tried_again_after_a_while_that_doubles(world: World, clock: Clock) -> None:
    link, job = await waiting(world)
    busy, _ = await world.attach(a_hello("busy", instance="i2", parallel=1))
    busy.member.promise(a_job("other"))  # so that a worker is left, and the run waits
    for delay_s in (30, 60, 120, 240, 480, 600, 600):
        await answer(world, link, MISSING)
        count = len(checks(link))
        clock.now += delay_s - 1
        await world.hand_over()
        assert len(checks(link)) == count
        clock.now += 2
        await world.hand_over()
        assert len(checks(link)) == count + 1
    assert (await world.run_of(job)).state == "queued"


async def test_a_negative_does_not_outlive_the_environment_it_was_found_in(
    world: World, clock: Clock
) -> None:
    link, job = await waiting(world)
    busy, _ = await world.attach(a_hello("busy", instance="i2", parallel=1))
    busy.member.promise(a_job("other"))
    await answer(world, link, MISSING)
    world.fitness.environment_changed("box", "env-1")
    await world.hand_over()
    assert len(checks(link)) == 1, "that is the one it was found in"
    world.fitness.environment_changed("box", "env-2")
    await world.hand_over()
    await answer(world, link, OK, environment="env-2")
    assert handed(link) == [job.id]


async def test_a_check_that_came_to_nothing_is_begun_again(world: World, clock: Clock) -> None:
    link, job = await waiting(world)
    await answer(world, link, protocol.Exit(3.0, "not_started", "cannot fetch it"))
    assert (await world.run_of(job)).state == "queued"
    assert len(checks(link)) == 1
    clock.now += 1
    await world.hand_over()
    await answer(world, link, OK)
    assert handed(link) == [job.id]


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (OK, "ok"),
        (MISSING, "missing"),
        (SLOW, "slow"),
        (protocol.Result("cancelled", 3.0), "unchecked"),
        (protocol.Exit(3.0, "crashed", "signal 11", signal=11), "missing"),
        (protocol.Exit(3.0, "crashed", "exit 3", code=3), "missing"),
        (protocol.Exit(3.0, "crashed", "the warden ended", signal=9), "unchecked"),
        (protocol.Exit(3.0, "crashed", "signal 9, possibly out of memory", signal=9), "unchecked"),
        (protocol.Exit(3.0, "crashed", "the agent ended and its engines with it"), "unchecked"),
        (protocol.Exit(3.0, "timeout", "did not end"), "slow"),
        (protocol.Exit(3.0, "stopped", "the worker stopped"), "unchecked"),
        (protocol.Exit(3.0, "not_started", "no room"), "unchecked"),
    ],
)
def test_what_the_end_of_a_check_shows(event: Any, state: str) -> None:
    assert importchecks.concluded(event).state == state


async def test_a_dropped_session_ends_no_check_that_the_worker_still_holds(world: World) -> None:
    link, job = await waiting(world)
    (check,) = checks(link)
    held = [protocol.as_dict(protocol.Held(check.job, check.lease))]
    attached, _ = await world.attach(a_hello(held=held))
    assert not isinstance(attached, protocol.Refused)
    assert attached.resume == [protocol.Resume(check.job, check.lease, {}, False, False)]
    await answer(world, link, OK)
    assert (await world.job(job)).state == "leased"


async def test_a_check_that_a_worker_no_longer_holds_is_asked_anew(world: World) -> None:
    link, _ = await waiting(world)
    (check,) = checks(link)
    _, link = await world.attach()
    await world.hand_over()
    assert len(checks(link)) == 1
    with pytest.raises(StaleLease):
        world.imports.record(check.job, check.lease, "engine", 1, [OK], "box")


async def test_another_instance_begins_with_nothing(world: World) -> None:
    link, _ = await waiting(world)
    await answer(world, link, OK)
    await world.attachments.leave(world.fleet.member("box"), link, "stopped")
    _, link = await world.attach(a_hello(instance="i2"))
    await world.start_run(fingerprint=CODE)
    await world.hand_over()
    assert len(checks(link)) == 1


async def test_a_worker_that_cannot_begin_with_a_job_does_not_get_it_again(world: World) -> None:
    link, job = await waiting(world)
    _, other = await world.attach(a_hello("other", instance="i2"))
    await world.hand_over()
    await answer(world, link, OK)
    leased = await world.job(job)
    unfit = protocol.Result("unfit", 3.0, "arguments_do_not_load", "no class Point here", error=ERROR)
    await world.report(leased, protocol.Started(2.0, 1, "3.11"), unfit)
    await world.hand_over()
    assert (await world.run_of(job)).state == "queued"
    assert reason(world, job).startswith("box arguments_do_not_load")
    beside = await world.start_run(fingerprint=CODE)
    await world.hand_over()
    assert handed(link) == [job.id, beside.id], "other jobs of the same code are not held up"
    await answer(world, other, OK)
    assert handed(other) == [job.id]
    leased = await world.job(job)
    assert leased.attempt == 2
    await world.report(leased, protocol.Started(2.0, 1, "3.11"), unfit)
    await world.hand_over()
    run = await world.run_of(job)
    assert (run.state, run.reason, run.error) == ("failed", "parameters", ERROR)


async def test_a_module_that_went_away_after_its_check_is_a_reason_against_that_worker(world: World) -> None:
    world.imports.inspected([CODE])
    _, link = await world.attach(a_hello("server"))
    job = await world.start_run(fingerprint=CODE)
    await world.hand_over()
    leased = await world.job(job)
    unfit = protocol.Result("unfit", 3.0, "code_missing", "no module named torch", error=ERROR)
    await world.report(leased, protocol.Started(2.0, 1, "3.11"), unfit)
    await world.hand_over()
    run = await world.run_of(job)
    assert (run.state, run.reason, run.error) == ("failed", "import", ERROR)
    assert len(link.of(protocol.Assign)) == 1


async def test_a_python_that_is_too_old_is_a_reason_that_needs_no_asking(world: World) -> None:
    _, link = await world.attach(a_hello(python="3.9.2"))
    job = await world.start_run(fingerprint=CODE, ask=Ask(requires_python=">=3.12"))
    await world.hand_over()
    assert reason(world, job) == "box requires_python"
    assert checks(link) == []
    found = world.queue.waiting(job.id)
    assert found is not None
    assert "has Python 3.9.2, and it needs >=3.12" in found.message


async def test_what_is_known_of_old_code_is_forgotten_in_the_end(world: World, monkeypatch) -> None:
    monkeypatch.setattr(importchecks, "_STANDINGS_MAX", 2)
    _, link = await world.attach(a_hello(parallel=9))
    for code in (CODE, *("sha256:" + digit * 64 for digit in "456")):
        await world.start_run(fingerprint=code)
        await world.hand_over()
        await answer(world, link, OK)
    await world.start_run(fingerprint=CODE)
    await world.hand_over()
    assert len(checks(link)) == 5, "the first is asked anew"
