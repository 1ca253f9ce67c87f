"""``farhand runs show`` and the calls of a run: which it lists, and how the others are seen."""

from __future__ import annotations

import json

import pytest

from farhand.model import TaskRun
from tests.unit.web.fakes import FakeServices

from .conftest import Call

pytestmark = pytest.mark.usefixtures("server")


def test_a_run_is_shown_with_its_calls_and_what_they_needed(call: Call, services: FakeServices) -> None:
    progress = {"at": 1.0, "done": 3, "total": 4, "message": "reading"}
    services.runs.task_runs = [
        TaskRun("0run1", "a", 1, "load", "completed"),
        TaskRun("0run1", "b", 2, "fit", "running", index=0, needs=("a",), progress=progress, worker="gpu-1"),
        TaskRun("0run1", "c", 3, "judge", "failed", needs=("a", "b"), error={"type": "E", "message": "no"}),
        TaskRun("0run1", "d", 4, "inner", "completed", flow_run="0run2"),
    ]
    lines = [line.split() for line in call("runs", "show", "0run1").stdout.splitlines()[-4:]]
    assert [line[:2] for line in lines] == [["1", "load"], ["2", "fit[0]"], ["3", "judge"], ["4", "inner"]]
    assert " ".join(lines[1]).endswith("1 3 of 4 (75%), reading")
    assert " ".join(lines[2]).endswith("1, 2 E: no")
    assert lines[3][-2:] == ["run", "0run2"]
    assert [line[3] for line in lines] == ["server", "gpu-1", "server", "server"]


def test_a_call_that_no_machine_has_had_yet_names_none(call: Call, services: FakeServices) -> None:
    services.runs.task_runs = [TaskRun("0run1", "a", 1, "fit", "queued", placed="j2")]
    assert call("runs", "show", "0run1").stdout.splitlines()[-1].split()[:4] == ["1", "fit", "queued", "-"]


def test_one_call_is_shown_with_its_result_or_its_traceback(call: Call, services: FakeServices) -> None:
    error = {"type": "E", "message": "no", "traceback": "Traceback:\n  in judge\nE: no\n"}
    services.runs.task_runs = [
        TaskRun("0run1", "a", 1, "load", "completed", value={"enc": "json", "text": "[1]"}, attempts=2),
        TaskRun("0run1", "b", 2, "judge", "failed", index=4, error=error, worker="gpu-1"),
    ]
    first = dict(
        line.split(maxsplit=1) for line in call("runs", "show", "0run1", "--call", "1").stdout.splitlines()
    )
    assert (first["task"], first["tries"], first["result"]) == ("load", "2", "[1]")
    second = call("runs", "show", "0run1", "--call", "2").stdout
    assert "judge[4]" in second
    assert second.endswith("\nTraceback:\n  in judge\nE: no\n")
    assert json.loads(call("runs", "show", "0run1", "--call", "2", "--json").stdout)["key"] == "b"
    missing = call("runs", "show", "0run1", "--call", "3")
    assert (missing.exit_code, missing.stderr) == (
        2,
        "farhand: 0run1 has no call 3; `farhand runs show 0run1` lists them\n",
    )


def test_why_a_call_does_not_go_on_is_told_whole(call: Call, services: FakeServices) -> None:
    services.runs.task_runs = [TaskRun("0run1", "a", 1, "fit", "running", placed="j2", worker="gpu-1")]
    why = "is on gpu-1, which is not heard of; queued again in 12 s unless it comes back, as it may do yet"
    services.calls.why_waiting = lambda _: why  # type: ignore[method-assign]
    assert call("runs", "show", "0run1").stdout.splitlines()[-1].endswith(why)


FAILED = (3, 150, 199)


@pytest.fixture
def many(services: FakeServices) -> None:
    """200 calls, of which two failed and one crashed."""
    failing = dict.fromkeys(FAILED, "failed") | {150: "crashed"}
    services.runs.task_runs = [
        TaskRun("0run1", f"k{n}", n, "fit", failing.get(n, "completed")) for n in range(1, 201)
    ]


def numbers(shown: str) -> list[int]:
    lines = shown.splitlines()
    at = next(place for place, text in enumerate(lines) if text.startswith("call"))
    return [int(line.split()[0]) for line in lines[at + 1 :] if line.strip()]


@pytest.mark.usefixtures("many")
def test_a_list_of_calls_that_is_cut_begins_with_what_failed_and_says_what_is_left(call: Call) -> None:
    done = call("runs", "show", "0run1")
    assert numbers(done.stdout) == [*FAILED, *(n for n in range(1, 49) if n != 3)]
    assert done.stderr == (
        "150 more: farhand runs show 0run1 --after 48,"
        " or one kind by --state (197 completed, 2 failed, 1 crashed)\n"
    )
    done = call("runs", "show", "0run1", "--after", "48", "--limit", "150")
    assert numbers(done.stdout) == [150, 199, *(n for n in range(49, 198) if n != 150)]
    assert done.stderr == "2 more: farhand runs show 0run1 --after 197\n"
    done = call("runs", "show", "0run1", "--after", "197")
    assert (numbers(done.stdout), done.stderr) == ([198, 199, 200], "")


@pytest.mark.usefixtures("many")
def test_the_calls_of_one_state_are_listed_in_order(call: Call) -> None:
    done = call("runs", "show", "0run1", "--state", "failed")
    assert (numbers(done.stdout), done.stderr) == ([3, 199], "")
    done = call("runs", "show", "0run1", "--state", "completed", "--limit", "2", "--after", "100")
    assert numbers(done.stdout) == [101, 102]
    assert done.stderr == "96 more: farhand runs show 0run1 --state completed --after 102\n"
    done = call("runs", "show", "0run1", "--state", "running")
    assert (done.exit_code, done.stderr) == (0, "No call is like that.\n")


@pytest.mark.usefixtures("many")
def test_a_program_gets_the_calls_that_it_asks_for(call: Call) -> None:
    assert "tasks" not in json.loads(call("runs", "show", "0run1", "--json").stdout)
    shown = json.loads(call("runs", "show", "0run1", "--state", "crashed", "--json").stdout)
    assert [task["number"] for task in shown["tasks"]["items"]] == [150]


def test_one_call_and_a_list_of_them_are_not_asked_for_together(call: Call) -> None:
    done = call("runs", "show", "0run1", "--call", "1", "--state", "failed")
    words = "--call shows one call; it goes without --state, --after and --limit"
    assert (done.exit_code, done.stderr) == (2, f"farhand: {words}\n")
