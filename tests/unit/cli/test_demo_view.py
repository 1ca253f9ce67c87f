from __future__ import annotations

from typing import Any

from farhand.cli.demo_view import HEADER, name_of, parts, result_of, table


def task(**changes: Any) -> dict[str, Any]:
    return {
        "name": "extract",
        "index": None,
        "state": "completed",
        "attempts": 1,
        "job": "job-1",
        "placed": None,
        "value": None,
        "started_at": 10.0,
        "ended_at": 10.25,
    } | changes


def attempt(lease: int, job: str, worker: str, pid: int) -> dict[str, Any]:
    return {"lease": lease, "job": job, "worker": worker, "host": f"host-of-{worker}", "pid": pid}


RUN = {
    "flow": "weather",
    "state": "completed",
    "started_at": 10.0,
    "ended_at": 12.5,
    "attempts": [attempt(3, "job-2", "demo", 30), attempt(1, "job-1", "server", 20)],
}


def test_a_placed_call_is_shown_where_its_own_job_ran() -> None:
    rows = parts(RUN, [task(), task(name="summarise", index=0, placed="job-2")])
    assert [row[1:4] for row in rows] == [
        ["server", "host-of-server", "20"],
        ["server", "host-of-server", "20"],
        ["demo", "host-of-demo", "30"],
    ]


def test_of_several_attempts_the_last_one_is_shown() -> None:
    run = RUN | {"attempts": [attempt(4, "job-1", "server", 21), attempt(1, "job-1", "server", 20)]}
    assert parts(run, [])[0][3] == "21"


def test_a_call_that_never_ran_has_dashes() -> None:
    rows = parts(RUN, [task(job="job-9", started_at=None)])
    assert rows[1][1:5] == ["-", "-", "-", "-"]


def test_a_call_of_a_map_carries_its_place() -> None:
    assert name_of(task(index=2)) == "extract[2]"
    assert name_of(task()) == "extract"


def test_a_retried_call_says_at_which_try_it_came_through() -> None:
    assert result_of(task(attempts=3)) == "completed at try 3"


def test_a_year_is_told_by_its_figures() -> None:
    assert result_of(task(value={"year": 2012, "mean": 11.25, "rain_days": 170})) == (
        "2012: 11.2 °C, 170 days of rain"
    )


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    lines = table(HEADER, parts(RUN | {"attempts": [attempt(1, "job-1", "server", 20)]}, []))
    assert lines[0].startswith("part     worker")
    assert lines[1].startswith("───────  ──────")
    assert lines[2].startswith("weather  server")
