"""An engine's placed calls and kept outcomes: asked for, replayed and taken over."""

from __future__ import annotations

import base64
import json
import pickle
import signal
import sys
from typing import Any

import pytest

from tests.integration.conftest import Begin
from tests.integration.fake_agent import FakeAgent


def test_a_placed_call_waits_for_its_outcome(begin: Begin) -> None:
    agent = begin(
        "@task(device=['gpu', 'zone=eu'], retries=2, timeout='2h')\ndef fit(x, lr=0.1): return 1\n"
        "@flow\ndef main(): return fit(3) + 1\n"
    )
    agent.start("pipeline:main")
    call = agent.until_event("call")
    asked = {"labels": ["gpu", "zone=eu"], "policy": "require", "runs_on": "any"}
    assert {name: call["ask"][name] for name in asked} == asked
    assert call["settings"]["retries"] == 2
    assert call["settings"]["timeout_s"] == 7200
    assert call["entry"] == "pipeline:fit"
    assert json.loads(call["args"]["text"]) == [[3], {}]
    agent.outcome(call, value=41)
    agent.outcome(call, value=99)
    agent.until("done")
    assert agent.value() == 42
    assert agent.events("checkpoint") == []


def test_the_hooks_of_a_placed_task_are_called_where_its_flow_is_and_not_on_replay(begin: Begin) -> None:
    agent = begin(
        "def told(summary): print('told', summary['state'], summary['result'], summary['params'])\n"
        "@task(device='gpu', on_completed=told, on_failed=told)\ndef fit(x): return 1\n"
        "@flow\ndef main(): return fit(3)\n"
    )
    agent.start("pipeline:main")
    call = agent.until_event("call")
    agent.outcome(call, value=41)
    agent.until("done")
    assert agent.value() == 41
    assert agent.texts() == ["told completed 41 {'x': 3}"]
    value = {"enc": "json", "text": "41"}
    body = {"key": call["key"], "name": "fit", "state": "completed", "value": value, "error": None}
    agent.kept = [{"number": 1, "key": call["key"], "body": body}]
    agent.run("pipeline:main")
    assert agent.value() == 41
    assert agent.texts() == []


def test_a_changed_run_replays_what_it_took_over_up_to_the_first_call_without_it(begin: Begin) -> None:
    agent = begin(
        "@task\ndef step(x):\n    print('ran', x)\n    return x\n"
        "@flow\ndef main(n: int = 0): return [step(1), step(10 + n), step(3)]\n"
    )
    agent.run("pipeline:main")
    agent.keep_outcomes()
    agent.kept = [{**item, "seeded": True} for item in agent.kept]
    agent.run("pipeline:main", {"n": 1}, settings={"in_order": True})
    assert (agent.value(), agent.texts()) == ([1, 11, 3], ["ran 11", "ran 3"])
    agent.run("pipeline:main", settings={"in_order": True})
    assert agent.texts() == []
    agent.run("pipeline:main", {"n": 1})
    assert agent.texts() == ["ran 11"]


def test_a_stopped_engine_does_not_end_the_flow_it_had_called(begin: Begin) -> None:
    agent = begin(
        "@flow\ndef inner():\n    print('inside', current_run().id)\n    time.sleep(60)\n"
        "@flow\ndef main(): return inner()\n"
    )
    agent.start("pipeline:main", settings={"called": {"other": "0other01"}})
    agent.until_event("log")
    flow = agent.events("task")[0]["flow"]
    assert agent.texts() == [f"inside {flow['id']}"]
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(10) == 143
    [end] = agent.events("checkpoint")
    assert (end["state"], end["kept"], "flow" in end) == ("cancelled", False, False)


def test_a_thousand_placed_calls_take_no_threads(begin: Begin) -> None:
    agent = begin(
        "@task(runs_on='worker')\ndef fit(x): return 1\n"
        "@flow\ndef main():\n    calls = fit.map(range(1000))\n    print(threading.active_count())\n"
        "    return sum(calls.result())\n"
    )
    agent.start("pipeline:main")
    for number in range(1000):
        agent.outcome(
            agent.until_event("call", number + 1) if number == 999 else _nth_call(agent, number), value=2
        )
    agent.until("done")
    assert agent.value() == 2000
    assert int(agent.texts()[0]) < 8


def _nth_call(agent: FakeAgent, number: int) -> dict[str, Any]:
    if number == 0:
        agent.until_event("call", 1000)
        agent.all_calls = agent.events("call")  # type: ignore[attr-defined]
    return agent.all_calls[number]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("outcome", "seen"),
    [
        (
            {"state": "failed", "error": {"type": "Odd", "module": "x", "message": "no"}},
            "TaskFailed: Odd: no",
        ),
        ({"state": "crashed"}, "WorkerLost: worker went away mid-call"),
    ],
)
def test_a_placed_call_that_fails_raises(begin: Begin, outcome: dict[str, Any], seen: str) -> None:
    agent = begin("@task(runs_on='worker')\ndef far(): pass\n@flow\ndef main(): far()\n")
    agent.start("pipeline:main")
    agent.outcome(agent.until_event("call"), **outcome)
    agent.until("done")
    assert agent.result()["message"] == seen


def test_an_exception_from_elsewhere_keeps_its_type(begin: Begin) -> None:
    agent = begin(
        "class Odd(Exception): pass\n"
        "@task(runs_on='worker')\ndef far(x): raise Odd(x)\n"
        "@flow\ndef main():\n    try: far(7)\n    except Odd as error: return error.args[0]\n"
    )
    agent.run("pipeline:far", [[7], {}], kind="call", key="k1")
    error = agent.result()["error"]
    assert error["type"] == "Odd"
    agent.start("pipeline:main")
    agent.outcome(agent.until_event("call"), state="failed", error=error)
    agent.until("done")
    assert agent.value() == 7


class Ends:
    """Unpickling it ends whatever thread does so."""

    def __reduce__(self) -> Any:
        return sys.exit, ("no module for you",)


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_an_outcome_that_ends_the_thread_that_unpickles_it_is_the_end_of_its_call_alone(
    begin: Begin, state: str
) -> None:
    agent = begin(
        "@task(runs_on='worker')\ndef far(): pass\n"
        "@flow\ndef main():\n    try: far()\n    except BaseException as error: print(repr(error))\n"
        "    return far()\n"
    )
    agent.start("pipeline:main")
    call = agent.until_event("call")
    pickled = base64.b64encode(pickle.dumps(Ends())).decode()
    body = {"key": call["key"], "name": "far", "state": state, "started_at": 1.0, "ended_at": 2.0}
    body["value"] = {"enc": "pickle", "text": pickled} if state == "completed" else None
    body["error"] = {"type": "Odd", "module": "x", "message": "no", "pickle": pickled}
    agent.send("outcome", key=call["key"], body=body)
    agent.outcome(agent.until_event("call", 2), value=41)
    agent.until("done")
    assert agent.value() == 41
    (told,) = agent.texts()
    assert ("Odd: no" if state == "failed" else "no module for you") in told


def test_a_call_job_runs_the_task_under_the_scope_of_its_key(begin: Begin) -> None:
    agent = begin(
        "@task\ndef inner(x): return x\n"
        "@task(device='gpu')\ndef fit(x, y=1):\n    print('here')\n    return inner(x) + y\n"
    )
    agent.run("pipeline:fit", [[3], {"y": 5}], kind="call", key="abc")
    assert agent.value() == 8
    assert agent.events("checkpoint")[0]["scope"] == "abc"
    assert agent.events("log")[0]["task"] == "abc"


def test_kept_outcomes_replay_in_any_order_and_are_not_recorded_again(begin: Begin) -> None:
    agent = begin(
        "@task\ndef part(x):\n    print('made', x)\n    return {'part': x, 'more': list(range(100))}\n"
        "@task\ndef total(parts): return sum(p['part'] for p in parts)\n"
        "@flow\ndef main(reverse: bool):\n"
        "    order = [2, 1, 0] if reverse else [0, 1, 2]\n"
        "    parts = {i: part(i) for i in order}\n"
        "    return total([parts[0], parts[1], parts[2]])\n"
    )
    agent.run("pipeline:main", {"reverse": False})
    assert len(agent.events("checkpoint")) == 4
    agent.keep_outcomes()
    agent.run("pipeline:main", {"reverse": True})
    assert agent.value() == 3
    assert agent.events("checkpoint") == []
    assert agent.texts() == []


def test_kept_failures_replay_after_a_crash_and_run_again_where_they_are_not_kept(begin: Begin) -> None:
    agent = begin(
        "@task\ndef bad():\n    print('tried')\n    raise ValueError('no')\n"
        "@flow\ndef main():\n    try: bad()\n    except ValueError as error: return str(error)\n"
    )
    agent.run("pipeline:main")
    agent.keep_outcomes()
    agent.run("pipeline:main")
    assert agent.value() == "no"
    assert agent.texts() == []
    agent.kept = []
    agent.run("pipeline:main")
    assert agent.texts() == ["tried"]


def test_a_retry_asks_again_for_a_placed_call_under_the_same_key(begin: Begin) -> None:
    agent = begin("@task(runs_on='worker')\ndef far(): pass\n@flow\ndef main(): return far()\n")
    agent.start("pipeline:main")
    call = agent.until_event("call")
    agent.outcome(call, state="failed", error={"type": "X", "module": "x", "message": "no"})
    agent.until("done")
    agent.start("pipeline:main")
    again = agent.until_event("call")
    assert again["key"] == call["key"]
    agent.outcome(again, value=5)
    agent.until("done")
    assert agent.value() == 5


def test_a_nested_flow_is_a_call_of_its_parent(begin: Begin) -> None:
    agent = begin("@flow\ndef inner(x: int): return x + 1\n@flow\ndef main(): return inner('4')\n")
    agent.run("pipeline:main")
    assert agent.value() == 5
    assert [body["name"] for body in agent.events("checkpoint")] == ["inner"]


def test_what_a_mapped_item_costs_to_report_does_not_grow_with_their_number(begin: Begin) -> None:
    """B142."""
    agent = begin(
        "@task\ndef double(x): return 2 * x\n"
        "@flow\ndef main(count: int): return len([f.result() for f in double.map(range(count))])\n"
    )
    each: list[float] = []
    for count in (100, 2000):
        agent.run("pipeline:main", {"count": count})
        assert agent.value() == count
        lines = agent.spool.read_bytes().splitlines()
        assert max(map(len, lines)) < 1000
        each.append(sum(map(len, lines)) / count)
    assert each[1] < 1.1 * each[0]
