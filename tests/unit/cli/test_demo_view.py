from __future__ import annotations

from typing import Any

from farhand.cli.demo_view import HEADER, name_of, parts, result_of, state_of, table


def task(**changes: Any) -> dict[str, Any]:
    return {
        "name": "extract",
        "index": None,
        "state": "completed",
        "attempts": 1,
        "worker": "server",
        "placed": None,
        "value": None,
        "started_at": 10.0,
        "ended_at": 10.25,
    } | changes


def attempt(number: int, worker: str, pid: int) -> dict[str, Any]:
    return {"number": number, "worker": worker, "host": f"host-of-{worker}", "pid": pid}


RUN = {
    "flow": "weather",
    "state": "completed",
    "started_at": 10.0,
    "ended_at": 12.5,
    "attempts": [attempt(1, "server", 20)],
}


def test_a_placed_call_is_shown_where_it_says_that_it_ran() -> None:
    value = {"host": "mill", "pid": 30}
    rows = parts(RUN, [task(), task(name="summarise", index=0, placed="job-2", worker="demo", value=value)])
    assert [row[1:4] for row in rows] == [
        ["server", "host-of-server", "20"],
        ["server", "host-of-server", "20"],
        ["demo", "mill", "30"],
    ]


def test_of_several_attempts_the_last_one_is_shown() -> None:
    run = RUN | {"attempts": [attempt(1, "server", 20), attempt(2, "demo", 21)]}
    assert [row[3] for row in parts(run, [task()])] == ["21", "21"]


def test_what_never_ran_has_dashes() -> None:
    run = RUN | {"attempts": [], "started_at": None}
    rows = parts(run, [task(placed="job-2", worker=None, started_at=None)])
    assert [row[1:5] for row in rows] == [["-", "-", "-", "-"], ["-", "-", "-", "-"]]


def test_a_call_of_a_map_carries_its_place() -> None:
    assert name_of(task(index=2)) == "extract[2]"
    assert name_of(task()) == "extract"


def test_a_state_says_where_it_is_so() -> None:
    assert state_of(task(state="running", worker="mill")) == "running on mill"
    assert state_of(task(state="queued", worker="mill")) == "handed to mill"
    assert state_of(task(state="queued", worker=None)) == "queued"


def test_a_retried_call_says_at_which_try_it_came_through() -> None:
    assert result_of(task(attempts=3)) == "completed at try 3"


def test_a_year_is_told_by_its_figures() -> None:
    assert result_of(task(value={"year": 2012, "mean": 11.25, "rain_days": 170})) == (
        "2012: 11.2 °C, 170 days of rain"
    )


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    lines = table(HEADER, parts(RUN, []))
    assert lines[0].startswith("part     worker")
    assert lines[1].startswith("───────  ──────")
    assert lines[2].startswith("weather  server")
