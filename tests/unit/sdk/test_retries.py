"""``retry_delay`` and ``retry_on`` as scripts see them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from farhand import exponential, flow, progress, task
from farhand.errors import NotSupported, SilentTooLong, Usage


def failing(times: int, kind: type[Exception] = ValueError) -> Any:
    """A function that fails so often, then returns how often it was called."""
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        if len(calls) <= times:
            raise kind("not yet")
        return len(calls)

    work.calls = calls  # type: ignore[attr-defined]
    return work


def test_a_task_waits_as_long_as_its_list_says() -> None:
    tried = task(retries=2, retry_delay=[0.05, "100ms"])(failing(2))

    @flow
    def body() -> int:
        return tried()

    began = time.monotonic()
    assert body() == 3
    assert time.monotonic() - began >= 0.15


def test_a_flow_is_not_retried_for_what_retry_on_does_not_name() -> None:
    work = failing(3, KeyError)
    tried = flow(retries=5, retry_on=(ValueError, OSError))(work)
    with pytest.raises(KeyError):
        tried()
    assert len(work.calls) == 1


def test_a_predicate_decides_with_the_exception() -> None:
    work = failing(3)
    tried = flow(retries=5, retry_on=lambda error: "not yet" in str(error))(work)
    assert tried() == 4


def test_a_predicate_that_fails_says_no() -> None:
    work = failing(1)

    def broken(error: BaseException) -> bool:
        raise RuntimeError("broken")

    with pytest.raises(ValueError, match="not yet"):
        flow(retries=5, retry_on=broken)(work)()
    assert len(work.calls) == 1


def test_exponential_stays_within_its_jitter() -> None:
    delays = [exponential(base="2s", cap=5, jitter=0.1).delay_s(number) for number in (1, 2, 3)]
    for delay_s, plain in zip(delays, (2, 4, 5), strict=True):
        assert plain * 0.9 <= delay_s <= plain * 1.1


@pytest.mark.parametrize(
    "options",
    [
        {"retry_delay": "soon"},
        {"retry_delay": []},
        {"retry_on": 3},
        {"retry_on": [ValueError, 3]},
        {"retry_on": KeyboardInterrupt},
        {"timeout": 0},
        {"silence_timeout": -1},
        {"priority": 1001},
        {"priority": True},
        {"max_concurrent": 0},
        {"tags": ["No Good"]},
        {"secrets": [3]},
        {"on_failed": 3},
    ],
)
def test_what_makes_no_sense_is_refused_at_decoration(options: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        flow(**options)(lambda: None)


@pytest.mark.parametrize("options", [{"priority": 3}, {"isolated": True}])
def test_what_a_task_in_its_flows_process_cannot_have_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Usage, match="ask for a machine"):
        task(**options)(lambda: None)


def test_what_only_flows_have_is_no_parameter_of_a_task() -> None:
    with pytest.raises(TypeError):
        task(max_concurrent=1)(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(NotSupported):
        flow(cache=True)(lambda: None)  # type: ignore[call-overload]


@pytest.mark.parametrize("options", [{"jitter": 2}, {"jitter": "much"}, {"base": 10, "cap": 1}])
def test_an_impossible_exponential_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        exponential(**options)


# ---------------------------------------------------------------- silence


def test_a_silent_flow_ends_and_one_that_reports_goes_on() -> None:
    @flow(silence_timeout=0.3)
    def silent() -> None:
        time.sleep(5)

    @flow(silence_timeout=0.3)
    def talking() -> str:
        for number in range(6):
            print(number)
            time.sleep(0.1)
        return "done"

    began = time.monotonic()
    with pytest.raises(SilentTooLong, match=r"silence_timeout of 0\.3 s"):
        silent()
    assert time.monotonic() - began < 3
    assert talking() == "done"


def test_what_a_task_says_keeps_its_flow_and_what_its_flow_says_does_not_keep_it() -> None:
    @task
    def talks() -> None:
        for number in range(5):
            print(number)
            time.sleep(0.1)

    @task(silence_timeout=0.3)
    def silent() -> None:
        time.sleep(5)

    @flow(silence_timeout=0.3)
    def parent() -> None:
        talks()

    @flow
    def chatty() -> None:
        future = silent.submit()
        for number in range(6):
            print(number)
            time.sleep(0.1)
        future.result()

    parent()
    with pytest.raises(SilentTooLong):
        chatty()


def test_progress_is_a_report() -> None:
    @flow(silence_timeout=0.3)
    def going() -> str:
        for number in range(6):
            progress(number, 6)
            time.sleep(0.1)
        return "done"

    assert going() == "done"


def test_an_async_flow_is_silent_too() -> None:
    import asyncio

    @flow(silence_timeout=0.2)
    async def silent() -> None:
        await asyncio.sleep(5)

    with pytest.raises(SilentTooLong):
        asyncio.run(silent())
