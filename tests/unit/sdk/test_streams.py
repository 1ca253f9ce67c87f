"""Streams that are read along, in one process: in order, to their end, anew when they break."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from farhand import Flow, flow, task
from farhand.errors import InvalidDocument, NodeFailed, NotSupported, StreamBroken
from farhand.sdk.streams import BROKEN, ENDED, Listed, Part, Stream, read_by, reading
from farhand.sdk.upstream import Attempt, Nearby

LOSS: dict[str, Any] = {"name": "loss", "stream": True}


@pytest.fixture(autouse=True)
def _home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARHAND_HOME", str(tmp_path))


def stream_of(attempt: Attempt) -> Stream:
    return Stream("loss", Nearby(attempt, "loss", ""))


def test_a_reader_begins_with_the_first_value_and_meets_the_last() -> None:
    seen = threading.Semaphore(0)

    @task(provides=[LOSS, "weights"])
    def fit() -> Any:
        for each in range(3):
            yield {"loss": each}
            assert seen.acquire(timeout=20)  # so the next one is yielded once this one was read
        return "w"

    @task(requires=[LOSS], provides="total")
    def watch(loss: Any) -> int:
        total = 0
        for each in loss:
            total += each
            seen.release()
        assert list(loss) == [0, 1, 2]
        return total

    @task(provides="all")
    def whole(loss: Any) -> Any:
        return loss

    along = Flow("along", nodes=[watch, whole, fit], outputs=["total", "weights", "all", "loss"])
    assert along() == {"total": 3, "weights": "w", "all": [0, 1, 2], "loss": [0, 1, 2]}


def test_an_awaited_reader_of_an_awaited_node() -> None:
    @task(provides=[LOSS])
    async def fit() -> Any:
        for each in range(3):
            await asyncio.sleep(0)
            yield {"loss": each}

    @task(requires=[LOSS], provides=[{"name": "double", "stream": True}])
    async def twice(loss: Any) -> Any:
        async for each in loss:
            yield {"double": each * 2}

    @task(requires=[{"name": "double", "stream": True}], provides="total")
    async def total(double: Any) -> int:
        return sum([each async for each in double])

    assert Flow("awaited", nodes=[total, twice, fit], outputs=["total"])() == {"total": 6}


def test_a_stream_without_values_is_read_to_its_end() -> None:
    @task(provides=[LOSS, "weights"])
    def fit() -> Any:
        yield from ()
        return 1

    @task(requires=[LOSS], provides="count")
    def count(loss: Any) -> int:
        return len(list(loss))

    assert Flow("empty", nodes=[count, fit], outputs=["count"])() == {"count": 0}


def test_a_reader_is_begun_anew_with_the_next_attempt_and_pays_no_retry_for_it() -> None:
    attempts, begun, read = [0], [0], threading.Event()

    @task(provides=[LOSS], retries=1)
    def fit() -> Any:
        attempts[0] += 1
        yield {"loss": attempts[0]}
        assert read.wait(20)
        if attempts[0] == 1:
            raise ValueError("no luck")
        yield {"loss": 10}

    @task(requires=[LOSS], provides=[{"name": "seen", "stream": True}])
    def watch(loss: Any) -> Any:
        begun[0] += 1
        for each in loss:
            yield {"seen": each}
            read.set()

    @task(requires=[{"name": "seen", "stream": True}], provides="last")
    def last(seen: Any) -> Any:
        return list(seen)

    assert Flow("anew", nodes=[last, watch, fit], outputs=["last"])() == {"last": [2, 10]}
    assert (attempts, begun) == ([2], [2])


@pytest.mark.parametrize("swallows", [False, True])
def test_those_that_read_along_are_skipped_when_the_node_fails_for_good(swallows: bool) -> None:
    read, broken = threading.Event(), list[str]()

    @task(provides=[LOSS])
    def fit() -> Any:
        yield {"loss": 1}
        assert read.wait(20)
        raise ValueError("no luck")

    @task(requires=[LOSS], provides="total")
    def watch(loss: Any) -> int:
        total = 0
        try:
            for each in loss:
                total += each
                read.set()
        except StreamBroken as error:
            broken.append(str(error))
            if not swallows:
                raise RuntimeError("as somebody might put it") from error
        return total

    @task
    def after(total: int) -> None:
        broken.append("after")

    with pytest.raises(NodeFailed, match=r"^node 'fit' failed: ValueError: no luck$"):
        Flow("failing", nodes=[after, watch, fit])()
    assert broken == ["the stream 'loss' broke off: ValueError: no luck"]


def test_a_reader_that_fails_by_itself_fails_alone() -> None:
    @task(provides=[LOSS, "weights"])
    def fit() -> Any:
        yield {"loss": 1}
        return 1

    @task(requires=[LOSS])
    def watch(loss: Any) -> None:
        raise KeyError(next(iter(loss)))

    with pytest.raises(NodeFailed, match=r"^node 'watch' failed: KeyError: 1$"):
        Flow("alone", nodes=[watch, fit], outputs=["weights"])()


def test_an_interruption_ends_the_wait_for_a_value() -> None:
    read = threading.Event()

    @task(provides=[LOSS], timeout=20)
    def fit() -> Any:
        yield {"loss": 1}
        assert read.wait(20)
        yield {"loss": 2}

    @task(requires=[LOSS], timeout=0.3)
    def watch(loss: Any) -> None:
        list(loss)

    try:
        with pytest.raises(Exception, match="watch took longer than its timeout"):
            _ended_first(Flow("interrupted", nodes=[watch, fit]), read)
    finally:
        read.set()


def _ended_first(ending: Flow[Any], read: threading.Event) -> None:
    """Run it; the node that yields goes on a moment after the reader's time is over."""
    timer = threading.Timer(1.0, read.set)
    timer.start()
    try:
        ending()
    finally:
        timer.cancel()


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        (["weights", LOSS], None),
        (
            [{"name": "weights", "stream": True}],
            "reads 'weights' as a stream, which node 'fit' provides without",
        ),
        ([{"name": "count", "stream": True}], "reads 'count' as a stream, which is an input of the flow"),
    ],
)
def test_what_is_no_stream_is_not_read_along(requires: list[Any], said: str | None) -> None:
    @task(provides=[LOSS, "weights"])
    def fit(count: int) -> Any:
        yield {"loss": 1}
        return 1

    @task(requires=requires)
    def watch(**taken: Any) -> None:
        pass

    def checked() -> Flow[Any]:
        return Flow("checked", nodes=[watch, fit], inputs=["count"])

    if said is None:
        assert checked()(count=1) == {}
        return
    with pytest.raises(InvalidDocument, match=said):
        checked()


def test_a_declared_flow_that_another_flow_calls_reads_along_too() -> None:
    @task(provides=[LOSS])
    def fit() -> Any:
        yield {"loss": 1}
        yield {"loss": 2}

    @task(requires=[LOSS], provides="total")
    def watch(loss: Any) -> int:
        return sum(loss)

    inner = Flow("inner", nodes=[watch, fit], outputs=["total"])

    @flow
    def outer() -> int:
        return inner()["total"] + inner()["total"]

    assert outer() == 6


def test_a_process_task_does_not_read_along() -> None:
    with pytest.raises(NotSupported, match="reads a stream, which a process task cannot; leave process out"):

        @task(requires=[LOSS], process=True)
        def watch(loss: Any) -> None:
            pass


# ---------------------------------------------------------------- the pieces


def test_an_attempt_gives_out_what_comes_after_a_number_once_there_is_something() -> None:
    attempt, parts = Attempt(["loss", "acc"]), list[Part]()
    attempt.ask("loss", 0, parts.append)
    attempt.add("acc", 1)
    assert parts == []
    attempt.add("loss", 5)
    attempt.add("loss", 6)
    attempt.ask("loss", 1, parts.append)
    attempt.ask("loss", 2, parts.append)
    attempt.end(ENDED)
    attempt.add("loss", 7)
    assert parts == [Part([5], 1), Part([6], 2), Part([], 2, ENDED)]
    attempt.ask("loss", 0, parts.append)
    assert parts[-1] == Part([5, 6], 2, ENDED)


def test_an_attempt_that_broke_gives_out_nothing_more() -> None:
    attempt, parts = Attempt(["loss"]), list[Part]()
    attempt.add("loss", 5)
    attempt.end(BROKEN, "no luck")
    attempt.ask("loss", 0, parts.append)
    assert parts == [Part((), 0, BROKEN, "no luck")]
    with pytest.raises(StreamBroken, match="the stream 'loss' broke off: no luck"):
        list(stream_of(attempt))


def test_what_an_attempt_yields_is_reported_in_order() -> None:
    told = list[Any]()

    def write(name: str, step: str, **more: Any) -> None:
        told.append((name, step, more.get("value"), more.get("message")))

    attempt = Attempt(["loss"], "key", write)
    attempt.begin()
    attempt.add("loss", 5)
    attempt.end(BROKEN, "no luck")
    attempt.end(ENDED)
    assert told == [
        ("loss", "begun", None, None),
        ("loss", "value", 5, None),
        ("loss", "broken", None, "no luck"),
    ]


def test_a_list_is_a_stream_as_well_and_is_read_again_from_its_beginning() -> None:
    stream = Stream("loss", Listed([1, 2]))
    assert [list(stream), list(stream)] == [[1, 2], [1, 2]]


def _held(function: Callable[..., Any]) -> Callable[..., Any]:
    def held(stream: Any) -> None:
        with reading([stream]):
            function(stream)

    return held


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return read_by(function, False)


@pytest.mark.parametrize("wrap", [_wrapped, _held])
def test_code_whose_stream_broke_ends_with_that_whatever_it_makes_of_it(wrap: Callable[..., Any]) -> None:
    attempt = Attempt(["loss"])
    attempt.end(BROKEN, "no luck")

    def swallow(stream: Any) -> int:
        try:
            list(stream)
        except StreamBroken:
            return 1
        return 2

    with pytest.raises(StreamBroken):
        wrap(swallow)(stream_of(attempt))
