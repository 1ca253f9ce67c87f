"""Schedules as user code writes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from farhand import cron, every, flow, task, timing
from farhand.errors import NotSupported, Usage


def test_a_flow_has_the_schedules_it_was_decorated_with() -> None:
    @flow(schedule=[cron("0  6 * * *", tz="Europe/Berlin"), every("15m", params={"n": 2})])
    def nightly(n: int = 1) -> int:
        return n

    assert [item.described() for item in nightly.schedules] == [
        {"spec": {"kind": "cron", "expr": "0 6 * * *", "tz": "Europe/Berlin"}, "params": {}},
        {"spec": {"kind": "every", "seconds": 900.0, "anchor": 0.0}, "params": {"n": 2}},
    ]


def test_one_schedule_need_not_be_a_list() -> None:
    @flow(schedule=every(90))
    def often() -> None: ...

    @flow
    def never() -> None: ...

    assert [item.spec["seconds"] for item in often.schedules] == [90.0]
    assert never.schedules == []


@pytest.mark.parametrize(
    "anchor",
    [
        1_900_000_000,
        "2030-03-17T17:46:40Z",
        "2030-03-17T18:46:40+01:00",
        datetime(2030, 3, 17, 19, 46, 40, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_an_anchor_is_a_moment_however_it_is_spelled(anchor: Any) -> None:
    assert every("1h", anchor=anchor).spec["anchor"] == 1_900_000_000.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: cron("0 6 * *"), "five fields"),
        (lambda: cron("0 0 6 * * *"), "five fields"),
        (lambda: cron("0 6 * * *", tz="EST"), "not a place's time zone"),
        (lambda: cron("0 6 * * *", tz="CET"), "not a place's time zone"),
        (lambda: every("soon"), "not a duration"),
        (lambda: every(0), "at least one second"),
        (lambda: every(60, anchor="noon"), "not a moment"),
        (lambda: every(60, anchor=datetime(2030, 1, 1)), "must say its zone"),
        (lambda: every(60, params={"x": object()}), "plain JSON"),
        (lambda: every(60, params={"x": float("nan")}), "plain JSON"),
        (lambda: every(60, overlap="queue"), "overlap='queue' is none there is; it is 'allow', or 'skip'"),
        (lambda: flow(schedule="0 6 * * *")(print), "must be cron"),
        (lambda: flow(schedule=[every(60), every("1m")])(lambda: None), "there twice"),
    ],
)
def test_a_schedule_that_cannot_be_used_is_refused_where_it_is_written(
    wrong: Callable[[], Any], said: str
) -> None:
    """B149 for the zones."""
    with pytest.raises(Usage, match=said):
        wrong()


def test_policies_that_are_not_there_yet_are_refused_and_not_ignored() -> None:
    """B049."""
    for name in ("catchup", "jitter"):
        with pytest.raises(NotSupported, match=f"{name}=….*not supported yet"):
            cron("0 6 * * *", **{name: "all"})
        with pytest.raises(NotSupported, match=f"{name}=….*not supported yet"):
            every(60, **{name: "all"})
    with pytest.raises(TypeError, match="no parameter 'colour'"):
        every(60, colour="red")
    with pytest.raises(TypeError, match="@task has no parameter 'schedule'"):
        task(schedule=every(60))(print)  # type: ignore[call-overload]


@pytest.mark.parametrize("made", [lambda **more: cron("0 6 * * *", **more), lambda **more: every(60, **more)])
def test_a_schedule_that_skips_what_overlaps_says_so_and_another_says_nothing(made: Any) -> None:
    assert made(overlap="skip").spec == {**made().spec, "overlap": "skip"}
    assert made(overlap="allow").spec == made().spec
    assert timing.skips(made(overlap="skip").spec)
    assert not timing.skips(made().spec)


def test_what_they_export_is_what_the_server_reads() -> None:
    assert str(timing.read(cron("0 6 * * *", tz="Europe/Berlin").spec)) == "0 6 * * * in Europe/Berlin"
    assert str(timing.read(every("15m").spec)) == "every 15 min"
