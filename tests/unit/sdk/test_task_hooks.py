"""Hooks of tasks: called where the flow is, once a call has its outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from farhand import flow, task
from farhand.errors import Usage

Heard = list[dict[str, Any]]


@pytest.fixture
def heard() -> Heard:
    return []


def test_a_hook_is_told_of_the_call_before_the_flow_goes_on(heard: Heard) -> None:
    @task(on_completed=heard.append)
    def double(x: int, by: int = 2) -> int:
        return x * by

    @flow
    def main() -> list[int]:
        known = [double(1), len(heard)]
        return known + double.map([2, 3], by=5).result()

    assert main() == [2, 1, 10, 15]
    assert sorted((told["params"]["x"], told["result"], told["index"]) for told in heard[1:]) == [
        (2, 10, 0), (3, 15, 1),
    ]  # fmt: skip
    first = heard[0]
    assert (first["task"], first["flow"], first["state"], first["error"]) == (
        "double",
        "main",
        "completed",
        None,
    )
    assert first["ended_at"] >= first["started_at"]


def test_a_hook_on_failure_is_called_once_after_the_last_retry(heard: Heard) -> None:
    @task(retries=2, on_failed=heard.append, on_completed=lambda _: 1 / 0)
    def breaks() -> None:
        raise ValueError("it broke")

    @flow
    def main() -> str:
        with pytest.raises(ValueError, match="it broke"):
            breaks()
        return "went on"

    assert main() == "went on"
    [told] = heard
    assert (told["state"], told["reason"], told["error"]["type"]) == ("failed", "exception", "ValueError")


@pytest.mark.parametrize("end", [RuntimeError("no paper"), SystemExit("no paper")])
def test_a_hook_that_fails_is_told_in_the_log_and_changes_nothing(journal: Any, end: BaseException) -> None:
    def broken(summary: dict[str, Any]) -> None:
        raise end

    @task(on_completed=broken)
    def fine() -> int:
        return 1

    @flow
    def main() -> int:
        return fine()

    assert main() == 1
    logs = [body["text"] for kind, body, *_ in journal() if kind == "log"]
    assert any("a hook of fine failed" in text and "no paper" in text for text in logs)


def test_hooks_of_coroutine_tasks_are_called_too_and_cancelled_ones_as_cancelled(heard: Heard) -> None:
    @task(on_completed=heard.append, on_cancelled=heard.append)
    async def waits(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @flow
    async def main() -> None:
        await waits(0)
        future = asyncio.ensure_future(waits(60))
        await asyncio.sleep(0.01)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(main())
    assert [told["state"] for told in heard] == ["completed", "cancelled"]


def test_what_is_no_hook_is_refused_where_it_is_written() -> None:
    async def later(summary: dict[str, Any]) -> None: ...

    with pytest.raises(Usage, match="later is async def"):
        task(on_failed=later)(lambda: None)
    with pytest.raises(Usage, match="function of one argument"):
        flow(on_failed="mail me")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="on_crashed"):
        task(on_crashed=print)(lambda: None)  # type: ignore[call-overload]
