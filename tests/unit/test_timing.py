"""When schedules fire, round the changes of clocks above all."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farhand import timing
from farhand.errors import Usage
from farhand.timing import Cron, Every

BERLIN = "Europe/Berlin"
SPRING = datetime(2024, 3, 31, 1, tzinfo=UTC).timestamp()  # 02:00 becomes 03:00
AUTUMN = datetime(2024, 10, 27, 1, tzinfo=UTC).timestamp()  # 03:00 becomes 02:00
DAY = 86400.0

ZONES = (
    BERLIN, "Europe/London", "Europe/Dublin", "America/New_York", "America/Los_Angeles", "America/St_Johns",
    "America/Sao_Paulo", "America/Havana", "America/Santiago", "America/Asuncion", "America/Nuuk",
    "Asia/Beirut", "Asia/Tehran", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Gaza", "Asia/Amman", "Asia/Tokyo",
    "Africa/Cairo", "Africa/Casablanca", "Africa/Lagos", "Australia/Lord_Howe", "Australia/Sydney",
    "Australia/Adelaide", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Apia", "Pacific/Easter",
    "Antarctica/Troll", "Etc/GMT+5", "UTC",
)  # fmt: skip
CRONS = (
    "30 2 * * *", "30 1 * * *", "0 0 * * *", "15 0 * * *", "0 2,3 * * *", "0,30 2 * * *", "*/15 2 * * *",
    "*/15 1-3 * * *", "* * * * *", "*/10 * * * *", "30 * * * *", "0 */2 * * *", "0 6 * * 1-5", "59 23 * * *",
    "0 3 * * 0", "5 4 1 * *", "0 12 31 * *", "0 0 L * *", "*/7 */5 * * *", "0 1 * 3,10,11 SUN",
)  # fmt: skip


def local(moment: float, zone: str = BERLIN) -> str:
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).strftime("%d %H:%M%z")


def some(rule: Cron | Every, after: float, count: int) -> list[float]:
    return list(itertools.islice(rule.fires(after), count))


def day_of(moment: float) -> float:
    return moment - 12 * 3600


def test_a_time_in_the_gap_fires_at_the_first_moment_after_it() -> None:
    """B042."""
    fires = [local(moment) for moment in some(Cron("30 2 * * *", BERLIN), day_of(SPRING) - DAY, 4)]
    assert fires == ["30 02:30+0100", "31 03:00+0200", "01 02:30+0200", "02 02:30+0200"]


def test_a_time_in_the_fold_fires_once_the_first_time() -> None:
    """B042."""
    fires = [local(moment) for moment in some(Cron("30 2 * * *", BERLIN), day_of(AUTUMN) - DAY, 3)]
    assert fires == ["26 02:30+0200", "27 02:30+0200", "28 02:30+0100"]


def test_several_times_in_one_gap_fire_once() -> None:
    for expr in ("0,30 2 * * *", "0 2,3 * * *", "*/15 2 * * *"):
        fires = some(Cron(expr, BERLIN), SPRING - 3600, 2)
        assert local(fires[0]) == "31 03:00+0200", expr
        assert fires[1] - fires[0] > 12 * 3600, expr


def test_a_quarter_hourly_cron_of_one_hour_does_not_run_twice_in_the_fold() -> None:
    fires = some(Cron("*/15 2 * * *", BERLIN), AUTUMN - 2 * 3600, 5)
    assert [local(moment) for moment in fires[3:]] == ["27 02:45+0200", "28 02:00+0100"]


@pytest.mark.parametrize("change", [SPRING, AUTUMN])
def test_a_cron_of_every_hour_goes_on_through_a_change(change: float) -> None:
    fires = some(Cron("*/30 * * * *", BERLIN), change - 2 * 3600, 8)
    assert {later - earlier for earlier, later in itertools.pairwise(fires)} == {1800.0}


def test_an_hourly_range_is_every_hour_too() -> None:
    assert some(Cron("5 0-23 * * *", BERLIN), AUTUMN - 7200, 5) == some(
        Cron("5 * * * *", BERLIN), AUTUMN - 7200, 5
    )


@pytest.mark.parametrize("zone", ZONES)
def test_the_next_fire_is_the_same_from_every_base(zone: str) -> None:
    """B043: next(base) is the element of the whole sequence that follows base, round every change."""
    for expr, change in itertools.product(CRONS, changes(zone)):
        rule = Cron(expr, zone)
        start = change - DAY
        whole = list(itertools.takewhile(lambda moment, c=change: moment <= c + 2 * DAY, rule.fires(start)))
        whole += [next(rule.fires(change + 2 * DAY))]
        place = 0
        for base in bases(int(change)):
            while whole[place] <= base:
                place += 1
            assert next(rule.fires(base)) == whole[place], (expr, local(base, zone))


def bases(change: int) -> list[int]:
    """Two days round a change: every ten minutes near it, now and then further off."""
    near = set(range(change - 3 * 3600, change + 3 * 3600, 600))
    return sorted(near | set(range(change - 86400, change + 86400, 3 * 3600)))


def changes(zone: str) -> list[float]:
    """The moments in 2024 before and after which the offset differs; New Year where there is none."""
    start, tz = datetime(2024, 1, 1, tzinfo=UTC).timestamp(), ZoneInfo(zone)
    hours = [start + hour * 3600.0 for hour in range(366 * 24)]
    offsets = [datetime.fromtimestamp(hour, tz).utcoffset() for hour in hours]
    found = [hours[i] for i in range(1, len(hours)) if offsets[i] != offsets[i - 1]]
    return found or [start]


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 4e9), st.sampled_from(CRONS), st.sampled_from(ZONES))
def test_fires_increase_and_the_latest_is_one_of_them(after: float, expr: str, zone: str) -> None:
    rule = Cron(expr, zone)
    fires = some(rule, after, 4)
    assert after < fires[0] < fires[1] < fires[2] < fires[3]
    assert rule.latest(after, fires[2]) == fires[2]
    assert rule.latest(after, fires[3] - 1) == fires[2]
    assert rule.latest(after, after) is None
    assert rule.latest(after, fires[0] - 0.5) is None
    assert timing.missed(rule, after, fires[2]) == 2


@settings(deadline=None)
@given(st.floats(0, 4e9), st.floats(1, 1e6), st.floats(-1e9, 4e9))
def test_intervals_are_elapsed_time_whatever_clocks_do(after: float, seconds: float, anchor: float) -> None:
    """B045: the next fire always lies ahead, and its place does not depend on where one looks from."""
    rule = Every(seconds, anchor)
    fires = some(rule, after, 4)
    assert after < fires[0] <= after + seconds * 1.001
    assert some(rule, fires[0], 3) == fires[1:]
    assert rule.latest(after, fires[2]) == fires[2]
    assert rule.latest(after, after) is None


@pytest.mark.parametrize("change", [SPRING, AUTUMN])
def test_two_hours_are_two_hours_across_a_change(change: float) -> None:
    """B045."""
    fires = some(Every(7200, 0), change - DAY, 24)
    assert {later - earlier for earlier, later in itertools.pairwise(fires)} == {7200.0}


def test_the_latest_of_a_rare_cron_is_found_far_back() -> None:
    rule = Cron("0 0 29 2 *", "UTC")
    until = datetime(2027, 6, 1, tzinfo=UTC).timestamp()
    assert rule.latest(0.0, until) == datetime(2024, 2, 29, tzinfo=UTC).timestamp()


def test_missed_fires_are_counted_up_to_a_limit() -> None:
    assert timing.missed(Every(60, 0), 0.0, 600.0) == 9
    assert timing.missed(Every(60, 0), 0.0, 1e9) == timing.MISSED_MAX


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"kind": "cron", "expr": "0 6 * * *", "tz": "EST"}, "not a place's time zone"),
        ({"kind": "cron", "expr": "0 6 * * *", "tz": "CET"}, "not a place's time zone"),
        ({"kind": "cron", "expr": "0 6 * * *", "tz": "EST5EDT"}, "not a place's time zone"),
        ({"kind": "cron", "expr": "0 6 * * *", "tz": "right/Europe/Berlin"}, "not a place's time zone"),
        ({"kind": "cron", "expr": "0 6 * * *", "tz": "Europe/Berlim"}, "unknown on this machine"),
        ({"kind": "cron", "expr": "0 6 * * *", "tz": "../etc/passwd"}, "unknown on this machine"),
        ({"kind": "cron", "expr": "0 6 * *", "tz": "UTC"}, "does not have five fields"),
        ({"kind": "cron", "expr": "0 0 6 * * *", "tz": "UTC"}, "does not have five fields"),
        ({"kind": "cron", "expr": "0 25 * * *", "tz": "UTC"}, "Bad hour"),
        ({"kind": "cron", "expr": "x * * * *", "tz": "UTC"}, "Bad minute"),
        ({"kind": "cron", "expr": "*/0 * * * *", "tz": "UTC"}, "Bad minute"),
        ({"kind": "every", "seconds": 60, "overlap": "queue"}, "overlap is 'skip' or left out, not 'queue'"),
        ({"kind": "cron", "expr": "0 0 30 2 *", "tz": "UTC"}, "Bad day-of-month|never fires"),
        ({"kind": "every", "seconds": 0.5, "anchor": 0}, "at least 1 second"),
        ({"kind": "every", "seconds": float("inf"), "anchor": 0}, "must be a number"),
        ({"kind": "every", "seconds": 60, "anchor": "noon"}, "must be a number"),
        ({"kind": "rrule"}, "cron or every"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(spec: dict[str, Any], said: str) -> None:
    """B149 for the zones."""
    with pytest.raises(Usage, match=said):
        timing.read(spec)


def test_timings_say_what_they_are() -> None:
    assert (
        str(timing.read({"kind": "cron", "expr": "0  6 * * *", "tz": BERLIN})) == "0 6 * * * in Europe/Berlin"
    )
    assert [str(Every(s, 0)) for s in (90, 900, 7200, 86400)] == [
        "every 90 s", "every 15 min", "every 2 h", "every 1 d",
    ]  # fmt: skip
