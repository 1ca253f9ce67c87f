"""The server ends what outlives its limits, leniently and only where it can be sure; on a test's clock."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.engine import attachment as attachment_module
from farhand.engine import fleet as fleet_module
from farhand.engine import overdue as overdue_module
from farhand.engine import reports as reports_module
from farhand.engine.member import Member
from farhand.engine.overdue import Overdue
from farhand.model import Job, JobSettings
from farhand.store import Store
from farhand_worker import protocol
from tests.unit.engine.records import Clock, FakeLink
from tests.unit.engine.world import TIMES, World

pytestmark = pytest.mark.anyio

BEYOND_S = TIMES.grace_s + TIMES.lease_s + TIMES.margin_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (attachment_module, fleet_module, overdue_module, reports_module):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
async def world(clock: Clock, store: Store) -> World:
    return World(store)


async def look(world: World) -> None:
    overdue = Overdue(world.store, world.fleet, world.consequences)
    await overdue._end_what_is_due(overdue_module.time.monotonic())


async def begun(world: World, **limits: Any) -> tuple[Member, FakeLink, Job]:
    member, link, job = await world.worker_with_job(settings=JobSettings(**limits))
    return member, link, await world.started(job)


def beat(world: World, member: Member) -> None:
    """A heartbeat of a worker that has told everything."""
    world.attachments.heard(member)


async def test_a_job_is_ended_at_its_timeout_and_what_its_worker_is_allowed_beyond(
    world: World, clock: Clock
) -> None:
    member, link, job = await begun(world, timeout_s=60.0)
    clock.now += 60 + BEYOND_S - 0.01
    beat(world, member)
    await look(world)
    assert (await world.job(job)).state == "running"
    clock.now += 0.02
    await look(world)
    assert (await world.run_of(job)).reason == "timeout"
    assert link.sent[-1] == protocol.Fenced(job.id, job.lease or 0, link.sent[-1].reason, "timeout")
    assert member.holdings == {}


async def test_a_report_moves_the_limit_of_silence(world: World, clock: Clock) -> None:
    member, _, job = await begun(world, silence_timeout_s=30.0)
    clock.now += 30 + BEYOND_S - 1
    await world.report(job, protocol.Log(2.0, "here"), first=2)
    clock.now += 5
    beat(world, member)
    await look(world)
    assert (await world.job(job)).state == "running"
    clock.now += 25 + BEYOND_S
    beat(world, member)
    await look(world)
    assert (await world.run_of(job)).reason == "silence"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"timeout_s": 30.0, "timeout_words": "'w1' took too long"}, "'w1' took too long"),
        ({"silence_timeout_s": 30.0, "silence_words": "'w1' reported nothing"}, "'w1' reported nothing"),
    ],
)
async def test_a_job_with_words_of_its_own_for_a_limit_is_ended_with_them(
    limits: dict[str, Any], said: str, world: World, clock: Clock
) -> None:
    member, link, job = await begun(world, **limits)
    clock.now += 30 + BEYOND_S + 1
    beat(world, member)
    await look(world)
    assert isinstance(link.sent[-1], protocol.Fenced)
    assert link.sent[-1].reason == said
    assert (await world.run_of(job)).message == said


async def test_the_time_for_which_a_job_is_blocked_is_no_silence(world: World, clock: Clock) -> None:
    member, _, job = await begun(world, silence_timeout_s=30.0)
    await world.report(job, protocol.Blocked(2.0, 1), first=2)
    clock.now += 30 + BEYOND_S + 1
    beat(world, member)
    await look(world)
    assert (await world.job(job)).state == "running"
    await world.report(job, protocol.Unblocked(2.0, 1), first=3)
    clock.now += 30 + BEYOND_S + 1
    await world.hand_over()
    beat(world, member)
    await look(world)
    assert (await world.job(job)).blocked == ""
    assert (await world.job(job)).state == "running", "nor that for which it waits for its slot"
    clock.now += 30 + BEYOND_S + 1
    beat(world, member)
    await look(world)
    assert (await world.run_of(job)).reason == "silence"


async def test_a_worker_that_cannot_be_asked_is_left_to_its_lease(world: World, clock: Clock) -> None:
    member, link, job = await begun(world, timeout_s=1.0)
    clock.now += 1000
    await look(world)
    assert (await world.job(job)).state == "running", "it has not been heard for long"
    beat(world, member)
    member.behind = frozenset([job.id])
    await look(world)
    assert (await world.job(job)).state == "running", "there is something it has yet to tell"
    member.behind = frozenset()
    world.attachments.closed(member, link)
    await look(world)
    assert (await world.job(job)).state == "running", "it is not attached"


async def test_the_import_of_a_jobs_module_is_not_counted(world: World, clock: Clock) -> None:
    """B009."""
    member, _, job = await world.worker_with_job(settings=JobSettings(timeout_s=1.0))
    await world.report(job, protocol.Started(2.0, 1, "3.11", importing=True))
    clock.now += 1000
    beat(world, member)
    await look(world)
    assert (await world.job(job)).state == "running"
    await world.report(job, protocol.Started(2.0, 1, "3.11"), first=2)
    clock.now += 1 + BEYOND_S + 1
    beat(world, member)
    await look(world)
    assert (await world.run_of(job)).reason == "timeout"


async def test_a_job_that_has_not_begun_has_no_limit(world: World, clock: Clock) -> None:
    member, _, job = await world.worker_with_job(settings=JobSettings(timeout_s=1.0))
    clock.now += 1000
    beat(world, member)
    await look(world)
    assert (await world.job(job)).state == "leased"


async def test_a_job_that_cannot_be_ended_is_at_the_next_look(world: World, clock: Clock) -> None:
    member, _, job = await begun(world, timeout_s=60.0)
    clock.now += 60 + BEYOND_S + 0.01
    beat(world, member)
    world.fail_writes(RuntimeError("never seen before"))
    await look(world)
    assert (await world.job(job)).state == "running"
    await look(world)
    assert (await world.run_of(job)).reason == "timeout"
