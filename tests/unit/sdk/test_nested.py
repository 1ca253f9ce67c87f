"""Flows called inside of flows, as the record of a script tells it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from farhand import current_run, emit, flow, progress, task
from farhand.errors import InvalidParameters


def told(lines: list[Any], kind: str) -> list[dict[str, Any]]:
    return [body for each, body, *_ in lines if each == kind]


@task(tags=["io"])
def double(x: int) -> int:
    print("doubling")
    return 2 * x


@flow(run_name="inner of {n}")
def inner(n: int = 1) -> str:
    print("inside")
    emit(loss=1)
    progress(1, 2)
    double(n)
    return current_run().id


def test_a_called_flow_begins_with_what_its_run_is_made_of_and_ends_with_its_call(journal: Any) -> None:
    seen: list[str] = []

    @flow
    def outer() -> str:
        print("outside")
        seen.append(current_run().id)
        return inner("2")  # type: ignore[arg-type]

    id = outer()
    lines = journal()
    began = told(lines, "task")
    called = began[0]["flow"]
    assert called == {
        "id": id,
        "name": "inner",
        "entry": f"{__name__}:inner",
        "params": {"n": 2},
        "run_name": "inner of 2",
    }
    assert id[:10] >= seen[0][:10], "an id begins with the time, in milliseconds"
    assert (began[1]["name"], began[1]["nested"], began[1]["tags"]) == ("double", began[0]["key"], ["io"])
    assert "nested" not in began[0]
    ends = told(lines, "checkpoint")
    assert [("flow" in end, end["state"]) for end in ends] == [(False, "completed"), (True, "completed")]


def test_what_a_called_flow_says_names_it(journal: Any) -> None:
    @flow
    def outer() -> None:
        print("outside")
        inner()

    outer()
    lines = journal()
    key = told(lines, "task")[0]["key"]
    assert [(line["text"], line.get("nested")) for line in told(lines, "log")] == [
        ("outside", None), ("inside", key), ("doubling", key),
    ]  # fmt: skip
    assert told(lines, "metric")[0]["nested"] == key
    assert told(lines, "progress")[0]["nested"] == key


def test_flows_in_called_flows_and_on_threads_name_the_innermost(journal: Any) -> None:
    @flow
    def middle(n: int) -> str:
        return inner(n)

    @flow
    async def later(n: int) -> str:
        return await middle_later(n)

    @flow
    async def middle_later(n: int) -> str:
        return inner(n)

    @task
    def calls(n: int) -> str:
        return middle(n)

    @flow
    def outer() -> list[str]:
        return [future.result() for future in (calls.submit(1), calls.submit(2))] + [asyncio.run(later(3))]

    assert len(set(outer())) == 3
    began = told(journal(), "task")
    flows = {body["key"]: body for body in began if "flow" in body}
    names = [(body["name"], flows.get(body.get("nested", ""), {}).get("name")) for body in began]
    assert sorted(names, key=str) == sorted(
        [("calls", None)] * 2 + [("middle", None)] * 2 + [("inner", "middle")] * 2
        + [("later", None), ("middle_later", "later"), ("inner", "middle_later")] + [("double", "inner")] * 3,
        key=str,
    )  # fmt: skip


def test_a_called_flow_that_fails_says_why(journal: Any) -> None:
    @flow(retries=1)
    def breaks() -> None:
        raise ValueError("it broke")

    @flow
    def outer() -> str:
        with pytest.raises(InvalidParameters):
            inner("many")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="it broke"):
            breaks()
        return "went on"

    assert outer() == "went on"
    lines = journal()
    first, second = told(lines, "checkpoint")
    assert told(lines, "task")[0]["flow"]["params"] == {"n": "many"}
    assert first["flow"]["reason"] == "parameters"
    assert (second["flow"]["reason"], second["attempts"]) == ("exception", 2)
    assert "it broke" in second["flow"]["message"]


def test_a_called_flow_has_another_id_in_each_try_of_its_caller_and_the_same_key(journal: Any) -> None:
    ids: list[str] = []

    @flow
    def breaks() -> None:
        ids.append(current_run().id)
        raise ValueError("again")

    @flow(retries=1)
    def outer() -> None:
        breaks()

    with pytest.raises(ValueError, match="again"):
        outer()
    began = told(journal(), "task")
    assert [body["flow"]["id"] for body in began] == ids
    assert ids[0] != ids[1]
    assert began[0]["key"] == began[1]["key"]


def test_the_hooks_of_a_called_flow_are_told_of_its_own_run(journal: Any) -> None:
    heard: list[dict[str, Any]] = []

    @flow(on_completed=heard.append)
    def good(n: int) -> int:
        return n + 1

    @flow(on_failed=heard.append)
    def bad() -> None:
        raise ValueError("it broke")

    @flow(on_completed=heard.append)
    def outer() -> None:
        good(1)
        with pytest.raises(ValueError, match="broke"):
            bad()

    outer()
    assert [(told["flow"], told["state"], told["result"]) for told in heard] == [
        ("good", "completed", 2), ("bad", "failed", None), ("outer", "completed", None),
    ]  # fmt: skip
    assert heard[0]["params"] == {"n": 1}
    assert (heard[1]["error"]["type"], heard[1]["message"]) == ("ValueError", "ValueError: it broke")
    assert len({told["id"] for told in heard}) == 3
    [hook] = told(journal(), "task")[0]["flow"]["hooks"]
    assert hook == {"state": "completed", "index": 0, "name": "append"}


def test_a_long_parameter_is_described_and_not_recorded(journal: Any) -> None:
    @flow
    def takes(numbers: list) -> int:
        return len(numbers)

    @flow
    def outer() -> int:
        return takes(list(range(100_000)))

    assert outer() == 100_000
    shown = told(journal(), "task")[0]["flow"]["params"]["numbers"]
    assert shown.startswith("<builtins.list, ")
