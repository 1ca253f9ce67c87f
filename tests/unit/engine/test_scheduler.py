"""What fires, how often and when, over a real store and under a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from farhand.engine import scheduler as scheduler_module
from farhand.engine.runs import Runs
from farhand.engine.scheduler import LOOK_S, Scheduler
from farhand.engine.schedules import Schedules
from farhand.errors import NotFound, Usage
from farhand.model import Fire, Project, Run, Schedule
from tests.unit.engine.records import FLOW
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio

NOON = 1_700_000_000.0 - 1_700_000_000.0 % 86400 + 12 * 3600
EVERY_5_MIN = {"kind": "every", "seconds": 300.0, "anchor": 0.0}
MINUTELY = {"kind": "cron", "expr": "* * * * *", "tz": "UTC"}
HOUR = 3600.0


class Dial:
    """A scheduler, and the wall clock it reads."""

    def __init__(self, world: World, now: float = NOON) -> None:
        self.world, self.now = world, now
        self.store = world.store
        self.restart()

    def restart(self) -> None:
        """Another server starts on the same store."""
        runs = Runs(self.store, self.world.queue, self.world.fleet, self.world.consequences)
        self.scheduler = Scheduler(
            self.store, runs, self.world.consequences, self.world.bus, clock=lambda: self.now
        )
        self.schedules = Schedules(self.store, self.scheduler, self.world.bus)

    async def plan(self, *specs: dict[str, Any], params: str = "{}", flow: str = FLOW.name) -> None:
        """The project now has these schedules."""
        found = [Schedule(f"{flow}.{i}", flow, "default", spec, params) for i, spec in enumerate(specs)]
        project = Project("default", "served", "here", FLOW.bundle, 1, 1)
        await self.store.projects.replace(project, [FLOW], found, self.now)
        self.scheduler.reload()

    async def pass_time(self, seconds: float, step: float = 30.0) -> None:
        """The clock goes on, and the scheduler looks as often as it asked to."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + min(step, await self.scheduler.look() or step))
        await self.scheduler.look()

    async def runs(self) -> list[Run]:
        """Every run, oldest first."""
        return (await self.store.runs.page(1000)).items[::-1]

    async def times(self) -> list[float]:
        """What runs were scheduled for, as seconds after noon."""
        return sorted((run.scheduled_for or 0) - NOON for run in await self.runs())

    async def fires(self, id: str = "weather.0") -> list[Fire]:
        """The fires of a schedule, oldest first."""
        return (await self.store.schedules.fires(id, 1000))[::-1]


@pytest.fixture
def dial(world: World) -> Dial:
    return Dial(world)


async def test_a_run_is_created_for_each_fire_time_with_its_moment(dial: Dial) -> None:
    await dial.plan(EVERY_5_MIN, params="{}")
    await dial.pass_time(11 * 60)
    assert await dial.times() == [300, 600]
    run = (await dial.runs())[0]
    assert (run.flow, run.state, run.schedule) == ("weather", "queued", "weather.0")
    assert (run.bundle, run.fingerprint) == (FLOW.bundle, FLOW.fingerprint)
    assert len(dial.world.queue) == 2
    fire = (await dial.fires())[0]
    assert (fire.outcome, fire.late, fire.run) == ("started", False, run.id)


async def test_it_sleeps_until_the_next_fire_and_never_longer_than_it_may(dial: Dial) -> None:
    dial.now = NOON + 290
    await dial.plan(EVERY_5_MIN)
    assert await dial.scheduler.look() == 10.0
    dial.now = NOON + 301
    assert await dial.scheduler.look() == LOOK_S


async def test_nothing_of_the_past_fires_when_a_schedule_is_new(dial: Dial) -> None:
    """B055."""
    await dial.plan({"kind": "every", "seconds": 86400.0, "anchor": NOON - 10 * 86400 - 60})
    await dial.scheduler.look()
    assert await dial.runs() == []
    await dial.pass_time(86400, step=3600)
    assert await dial.times() == [86400 - 60]


async def test_after_a_pause_nothing_of_it_is_made_up_for(dial: Dial) -> None:
    """B055."""
    await dial.plan(MINUTELY)
    await dial.pass_time(60)
    await dial.schedules.pause("weather")
    await dial.pass_time(2 * HOUR)
    assert await dial.times() == [60]
    planned = await dial.schedules.resume("weather.0")
    assert planned.next[0] == dial.now + 60
    await dial.scheduler.look()
    assert await dial.times() == [60]
    await dial.pass_time(60)
    assert await dial.times() == [60, 60 + 2 * HOUR + 60]


async def test_after_a_pause_over_a_restart_nothing_of_it_is_made_up_for(dial: Dial) -> None:
    await dial.plan(MINUTELY)
    await dial.schedules.pause("weather.0")
    dial.now += HOUR
    dial.restart()
    await dial.schedules.resume("weather.0")
    await dial.scheduler.look()
    assert await dial.runs() == []


async def test_of_the_fires_missed_while_no_server_ran_the_latest_fires_once(dial: Dial) -> None:
    """B049, policy "latest once"; also when the server is started again right after."""
    await dial.plan(MINUTELY)
    await dial.pass_time(60)
    dial.now += 2 * HOUR + 20
    for _ in range(3):
        dial.restart()
        await dial.plan(MINUTELY)
        await dial.scheduler.look()
    assert await dial.times() == [60, 60 + 2 * HOUR]
    fire = (await dial.fires())[1]
    assert (fire.late, fire.missed) == (True, 119)
    assert fire.message == "20 s late, in place of 119 earlier fires"


async def test_a_late_fire_is_flagged_and_not_dropped(dial: Dial) -> None:
    """B048: the server stood still for ten seconds across a tick."""
    await dial.plan(MINUTELY)
    dial.now = NOON + 55
    await dial.scheduler.look()
    dial.now = NOON + 65
    await dial.scheduler.look()
    assert await dial.times() == [60]
    (fire,) = await dial.fires()
    assert (fire.late, fire.fired_at - fire.at, fire.missed) == (True, 5.0, 0)


@pytest.mark.fault("2.25")
async def test_a_clock_moved_an_hour_back_and_forth_doubles_and_loses_nothing(dial: Dial) -> None:
    await dial.plan(EVERY_5_MIN)
    await dial.pass_time(HOUR)
    dial.now -= HOUR
    await dial.pass_time(HOUR)
    assert await dial.times() == [300.0 * n for n in range(1, 13)]
    dial.now += HOUR  # twelve fire times are jumped over: the latest of them stands for all
    await dial.scheduler.look()
    assert await dial.times() == [300.0 * n for n in (*range(1, 13), 24)]
    dial.now -= HOUR  # and as their time really comes, the others fire
    dial.restart()
    await dial.plan(EVERY_5_MIN)
    await dial.pass_time(HOUR + 300)
    assert await dial.times() == [300.0 * n for n in range(1, 26)]
    assert len({run.idempotency_key for run in await dial.runs()}) == 25


@pytest.mark.fault("2.25")
async def test_a_clock_that_was_years_ahead_does_not_silence_a_schedule(dial: Dial) -> None:
    await dial.plan(EVERY_5_MIN)
    dial.now += 10 * 365 * 86400
    await dial.scheduler.look()
    dial.now = NOON
    dial.restart()
    await dial.pass_time(600)
    assert (await dial.times())[:2] == [300, 600]


@pytest.mark.fault("2.25")
async def test_the_service_itself_notices_a_jump(dial: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "LOOK_S", 0.02)
    await dial.plan(EVERY_5_MIN)
    dial.scheduler.start()
    try:
        await asyncio.sleep(0.05)
        assert await dial.runs() == []
        async with dial.world.bus.subscribe() as notices:
            dial.now += HOUR
            while (await asyncio.wait_for(anext(notices), 10)).kind != "schedule":
                pass
    finally:
        await dial.scheduler.stop()
    assert await dial.times() == [HOUR]


async def test_one_run_for_each_slot_of_a_day_that_has_a_change_of_clocks(dial: Dial) -> None:
    """B042, B044: also when the server is restarted in between."""
    change = 1711846800.0  # 2024-03-31 01:00 UTC, 02:00 to 03:00 in Berlin
    dial.now = change - 2 * 86400
    spec = {"kind": "cron", "expr": "30 2 * * *", "tz": "Europe/Berlin"}
    await dial.plan(spec)
    for _ in range(8):
        await dial.pass_time(43200, step=HOUR)
        dial.restart()
        await dial.plan(spec)
    slots = [moment + NOON - change for moment in await dial.times()]
    assert slots == [-171000, -84600, 0, 84600, 171000]


async def test_how_a_run_ends_does_not_matter_to_the_next_fire(dial: Dial) -> None:
    """B052, B053: one run a fire time, and none more because of how one before it ended."""
    await dial.plan(EVERY_5_MIN)
    for number in range(1, 4):
        await dial.pass_time(300)
        run = (await dial.runs())[-1]
        assert run.scheduled_for == NOON + 300 * number
        await dial.store.runs.cancel(run.id, dial.now)


async def test_a_schedule_that_skips_what_overlaps_has_one_run_waiting_and_says_of_the_others_why(
    dial: Dial,
) -> None:
    """B050, B051: for an hour there is nobody to run it."""
    await dial.plan({**EVERY_5_MIN, "overlap": "skip"})
    await dial.pass_time(1800)
    dial.restart()
    await dial.pass_time(1800)
    (waiting,) = await dial.runs()
    first, *others = await dial.fires()
    assert (first.outcome, first.run) == ("started", waiting.id)
    assert {(fire.outcome, fire.run) for fire in others} == {("skipped", None)}
    assert len(others) == 11
    assert others[0].message == f"run {waiting.id} is still queued"
    assert (await dial.schedules.get("weather.0")).when == "every 5 min, one at a time"
    await dial.store.runs.cancel(waiting.id, dial.now)
    await dial.pass_time(300)
    assert len(await dial.runs()) == 2


async def test_a_flow_whose_parameters_no_longer_fit_is_a_failed_fire_and_the_next_still_comes(
    dial: Dial,
) -> None:
    await dial.plan(EVERY_5_MIN, params='{"nope": 1}')
    await dial.pass_time(600)
    assert await dial.runs() == []
    assert [fire.outcome for fire in await dial.fires()] == ["failed", "failed"]
    assert "nope" in (await dial.fires())[0].message


async def test_a_schedule_that_is_gone_does_not_fire_and_comes_back_from_then_on(dial: Dial) -> None:
    await dial.plan(EVERY_5_MIN)
    await dial.plan()
    await dial.pass_time(HOUR)
    assert await dial.runs() == []
    assert [planned.state for planned in await dial.schedules.list()] == ["gone"]
    await dial.plan(EVERY_5_MIN)
    await dial.pass_time(300)
    assert await dial.times() == [HOUR + 300]


async def test_a_schedule_stays_paused_when_its_project_is_read_again(dial: Dial) -> None:
    await dial.plan(EVERY_5_MIN)
    await dial.schedules.pause("weather.0")
    await dial.plan(EVERY_5_MIN)
    await dial.pass_time(600)
    assert await dial.runs() == []


async def test_several_schedules_of_a_flow_fire_each_by_themselves(dial: Dial) -> None:
    await dial.plan(EVERY_5_MIN, {"kind": "every", "seconds": 600.0, "anchor": 0.0})
    await dial.pass_time(600)
    assert await dial.times() == [300, 600, 600]


async def test_a_store_that_fails_for_a_moment_costs_no_fire(dial: Dial) -> None:
    await dial.plan(MINUTELY)
    await dial.scheduler.look()
    failed = dial.world.fail_writes(RuntimeError("disk full"))
    dial.now += 60
    assert await dial.scheduler.look() == scheduler_module.AGAIN_S
    assert failed
    await dial.scheduler.look()
    assert await dial.times() == [60]


async def test_schedules_that_could_not_be_read_are_read_at_the_next_look(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> Any:
        raise RuntimeError("the database is away")

    await dial.plan(MINUTELY)
    await dial.pass_time(60)
    dial.scheduler.reload()
    with monkeypatch.context() as away:
        away.setattr(dial.store.schedules, "list", refuse)
        with pytest.raises(RuntimeError):
            await dial.scheduler.look()
    await dial.pass_time(60)
    assert await dial.times() == [60, 120]


async def test_one_schedule_that_fails_keeps_no_other_from_firing(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dial.plan(MINUTELY, EVERY_5_MIN)
    await dial.scheduler.look()
    turn = dial.scheduler._turn

    async def odd(hand: Any, now: float) -> None:
        if hand.schedule.id.endswith(".0"):
            raise ZeroDivisionError("a mistake")
        await turn(hand, now)

    monkeypatch.setattr(dial.scheduler, "_turn", odd)
    await dial.pass_time(300)
    assert await dial.times() == [300]


async def test_a_schedule_whose_zone_this_machine_lost_is_told_and_hurts_no_other(
    dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    """B149: time zone data missing on the machine."""
    await dial.plan({"kind": "cron", "expr": "0 6 * * *", "tz": "Mars/Base"}, EVERY_5_MIN)
    await dial.pass_time(300)
    assert await dial.times() == [300]
    assert "weather.0 cannot fire" in caplog.text
    assert "unknown on this machine" in (await dial.schedules.get("weather.0")).problem


async def test_an_unknown_or_ambiguous_id_is_named(dial: Dial) -> None:
    await dial.plan(EVERY_5_MIN, MINUTELY)
    with pytest.raises(NotFound, match="there is no schedule 'nope'"):
        await dial.schedules.pause("nope")
    with pytest.raises(Usage, match="several schedules begin with 'weather'"):
        await dial.schedules.pause("weather")
