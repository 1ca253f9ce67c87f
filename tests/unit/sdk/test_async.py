"""``async def`` flows and tasks, as a script runs them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from farhand import current_run, flow, task
from farhand.errors import InvalidParameters, TimedOut


@task
async def later(x: int, delay_s: float = 0.0) -> int:
    await asyncio.sleep(delay_s)
    return x + 1


@task
def double(x: int) -> int:
    return 2 * x


def begun(lines: list[Any]) -> list[dict[str, Any]]:
    return [body for kind, body, *_ in lines if kind == "task"]


def ended(lines: list[Any]) -> list[dict[str, Any]]:
    return [body for kind, body, *_ in lines if kind == "checkpoint"]


def test_a_coroutine_flow_is_awaited_like_any_coroutine(journal: Any) -> None:
    @flow
    async def main(n: int) -> list[int]:
        assert current_run().flow == "main"
        return await asyncio.gather(*(later(i) for i in range(n)))

    assert asyncio.run(main("3")) == [1, 2, 3]  # type: ignore[arg-type]
    assert [body["state"] for body in ended(journal())] == ["completed"] * 3
    assert journal()[-1][1]["state"] == "completed"
    with pytest.raises(InvalidParameters, match="n: must be a whole number"):
        main("x")  # type: ignore[arg-type]


def test_outside_of_a_run_a_coroutine_task_is_the_plain_function(home: Path) -> None:
    assert asyncio.run(later(1)) == 2
    assert not home.exists()


def test_keys_under_gather_follow_the_order_of_the_calls(journal: Any, tmp_path: Path) -> None:
    def keys_with(delays: list[float], place: str) -> list[str]:
        @flow(name=place)
        async def main() -> Any:
            return await asyncio.gather(*(slow(7, order) for order in range(len(delays))))

        @task(name="slow")
        async def slow(same: int, order: int) -> str:
            await asyncio.sleep(delays[order])
            return "same"

        asyncio.run(main())
        return [body["key"] for body in sorted(begun(journal()), key=lambda body: body["at"])]

    assert keys_with([0.02, 0.0, 0.01], "one") == keys_with([0.0, 0.02, 0.0], "two")


def test_plain_tasks_run_in_the_pool_when_submitted_and_futures_are_awaitable(journal: Any) -> None:
    @flow
    async def main() -> Any:
        numbers = await double.map([1, 2])
        own = later.submit(3, 0.01)
        return double(5), numbers, await own, await double.submit(own), await asyncio.gather(double.submit(4))

    assert asyncio.run(main()) == (10, [2, 4], 4, 8, [8])


def test_waiting_for_a_future_of_this_loop_without_await_is_refused(journal: Any) -> None:
    @flow
    async def main() -> Any:
        return later.submit(1, 0.01).result()

    with pytest.raises(RuntimeError, match="await the future instead"):
        asyncio.run(main())


def test_a_plain_flow_can_submit_and_run_coroutine_tasks(journal: Any) -> None:
    @flow
    def main() -> Any:
        return later.submit(1).result(), later.map([1, 2]).result(), asyncio.run(later(5))

    assert main() == (2, [2, 3], 6)


def test_timeouts_and_retries_of_coroutines(journal: Any) -> None:
    tries: list[int] = []

    @task(timeout=0.05, retries=1, retry_delay=0.01)
    async def slow() -> int:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.sleep(30)
        return len(tries)

    @flow(timeout=5)
    async def main() -> int:
        return await slow()

    assert asyncio.run(main()) == 2

    @flow(timeout=0.05)
    async def never() -> None:
        await asyncio.gather(later(1, 30), later(2, 30))

    began = time.monotonic()
    with pytest.raises(TimedOut, match=r"never took longer than its timeout of 0\.05 s"):
        asyncio.run(never())
    assert time.monotonic() - began < 5
    lines = journal()
    assert [body["state"] for body in ended(lines)] == ["cancelled", "cancelled"]
    assert lines[-1][1]["reason"] == "timeout"


def test_a_timeout_of_the_users_own_is_not_taken_for_ours(journal: Any) -> None:
    @task(timeout=30)
    async def slow() -> None:
        await asyncio.wait_for(asyncio.sleep(10), 0.01)

    @flow
    async def main() -> str:
        try:
            await slow()
        except TimeoutError as error:
            return type(error).__name__
        return ""

    assert asyncio.run(main()) == "TimeoutError"


def test_a_cancelled_call_is_recorded_as_cancelled_and_not_kept(journal: Any) -> None:
    @flow
    async def main() -> str:
        call = asyncio.create_task(later(1, 30))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        return "went on"

    assert asyncio.run(main()) == "went on"
    (body,) = ended(journal())
    assert (body["state"], body["kept"]) == ("cancelled", False)


def test_a_flow_that_ends_waits_for_its_calls_and_one_that_fails_cancels_them(journal: Any) -> None:
    @flow
    async def patient() -> None:
        later.submit(1, 0.05)
        double.submit(2)

    asyncio.run(patient())
    assert [body["state"] for body in ended(journal())] == ["completed", "completed"]

    @flow
    async def hasty() -> None:
        later.submit(1, 30)
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(hasty())
    assert [body["state"] for body in ended(journal())] == ["cancelled"]


def test_nested_coroutine_flows_and_flow_retries(journal: Any) -> None:
    tries: list[int] = []

    @flow
    async def inner(x: int) -> int:
        return await later(x)

    @flow(retries=1)
    async def main() -> int:
        value = await inner("4")  # type: ignore[arg-type]
        tries.append(value)
        if len(tries) == 1:
            raise ValueError("once")
        return value

    assert asyncio.run(main()) == 5
    assert [body["name"] for body in begun(journal())] == ["inner", "later"]


def test_asyncio_is_not_loaded_by_plain_flows() -> None:
    code = (
        "import sys\nfrom farhand import flow, task\n"
        "@task\ndef one(): return 1\n"
        "@flow\ndef main(): return one() + one.submit().result()\n"
        "main()\nsys.exit('asyncio' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], env={"FARHAND_RECORD": "0"}, timeout=30).returncode == 0
    )
