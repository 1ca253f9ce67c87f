"""Who waits for what comes from elsewhere reads the channel meanwhile."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from farhand.errors import Cancelled
from farhand.sdk import channel as module
from farhand.sdk.channel import Channel
from farhand.sdk.futures import Arrival
from farhand.sdk.interrupts import interrupter
from tests.harness.waiting import eventually

LENGTH = struct.Struct(">I")
MAIN, ASIDE = "MainThread", "farhand-channel"


def frame(kind: str, **fields: Any) -> bytes:
    text = json.dumps({"type": kind, **fields}).encode()
    return LENGTH.pack(len(text)) + text


class Waiting:
    """A channel whose ``outcome`` is what the main thread waits for, and the socket of its agent."""

    def __init__(self) -> None:
        self.agent, engine = socket.socketpair()
        self.channel = Channel(engine.detach())
        self.channel.on("outcome", self._on_outcome)
        self.channel.on("other", lambda _: self._note())
        self.readers: list[str] = []
        self.arrival = Arrival()
        self.more = False
        self.heard = threading.Event()

    def _note(self) -> None:
        self.readers.append(threading.current_thread().name)
        self.heard.set()

    def _on_outcome(self, _header: dict[str, Any]) -> None:
        self._note()
        self.arrival.release()

    def wait(self, timeout_s: float | None = 20.0) -> bool:
        self.arrival = Arrival()
        return self.channel.wait(self.arrival, timeout_s, lambda: self.more)

    def say(self, content: bytes) -> None:
        self.agent.sendall(content)

    def say_once_it_waits_aside(self) -> None:
        eventually(lambda: self.channel._waits_for is not None)  # pyright: ignore[reportPrivateUsage]
        self.say(frame("outcome"))

    def while_it_waits(self, do: Callable[[], None]) -> threading.Thread:
        """Do something on another thread once the main one reads as it waits."""
        begun = threading.Event()
        poll, self.channel._poll = self.channel._poll, Poll(self.channel._poll, begun.set)  # pyright: ignore[reportPrivateUsage]

        def run() -> None:
            assert begun.wait(20.0)
            self.channel._poll = poll  # pyright: ignore[reportPrivateUsage]
            do()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


class Poll:
    """Says when it is waited on."""

    def __init__(self, poll: Any, begins: Callable[[], None]) -> None:
        self._poll = poll
        self._begins = begins

    def poll(self, rest_ms: float | None) -> Any:
        self._begins()
        return self._poll.poll(rest_ms)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setattr(module, "LOOK_S", 600.0)
    monkeypatch.setattr(os, "_exit", sys.exit)
    stand_by = Channel._stand_by  # pyright: ignore[reportPrivateUsage]

    def to_the_end(channel: Channel) -> None:
        with pytest.raises(SystemExit):
            stand_by(channel)

    monkeypatch.setattr(Channel, "_stand_by", to_the_end)
    waiting = Waiting()
    waiting.channel.start()
    interrupter.open()
    yield waiting
    interrupter.close_all()
    waiting.agent.close()
    waiting.channel.listen()
    for thread in threading.enumerate():
        if thread.name == ASIDE:
            thread.join(20.0)
    waiting.channel._after_fork()  # pyright: ignore[reportPrivateUsage]


def test_who_waits_reads_what_it_waits_for_and_what_comes_before(waiting: Waiting) -> None:
    waiting.say(frame("other") + frame("outcome"))
    assert waiting.wait()
    assert waiting.readers == [MAIN, MAIN]


def test_what_came_with_it_is_left_for_whoever_reads_next(waiting: Waiting) -> None:
    waiting.say(frame("outcome") + frame("outcome"))
    assert waiting.wait()
    assert waiting.readers == [MAIN]
    assert waiting.wait()
    assert waiting.readers == [MAIN, MAIN]


def test_what_another_thread_brings_ends_the_wait(waiting: Waiting) -> None:
    bringing = waiting.while_it_waits(lambda: waiting.arrival.release())
    assert waiting.wait()
    bringing.join(20.0)
    assert waiting.readers == []


def test_a_wait_that_takes_too_long_is_given_up(waiting: Waiting) -> None:
    assert not waiting.wait(0.001)


def test_another_thread_reads_what_is_still_expected_after_a_wait(waiting: Waiting) -> None:
    waiting.more = True
    waiting.say(frame("outcome"))
    assert waiting.wait()
    waiting.heard.clear()
    waiting.say(frame("other"))
    assert waiting.heard.wait(20.0)
    assert waiting.readers == [MAIN, ASIDE]


def test_who_reads_aside_leaves_it_to_the_next_wait_once_nothing_else_is_expected(waiting: Waiting) -> None:
    waiting.channel.listen()
    waiting.say(frame("other"))
    assert waiting.heard.wait(20.0)
    telling = threading.Thread(target=waiting.say_once_it_waits_aside)
    telling.start()
    assert waiting.wait()
    telling.join(20.0)
    with waiting.channel._reading:  # pyright: ignore[reportPrivateUsage]
        pass
    waiting.say(frame("outcome"))
    assert waiting.wait()
    assert waiting.readers == [ASIDE, ASIDE, MAIN]


def test_an_interruption_ends_the_wait_and_costs_no_part_of_a_frame(waiting: Waiting) -> None:
    content = frame("outcome")
    waiting.say(content[:7])
    main = threading.get_ident()
    interrupting = waiting.while_it_waits(lambda: interrupter.raise_in(main, Cancelled, lambda: True))
    with pytest.raises(Cancelled):
        waiting.wait()
    interrupting.join(20.0)
    waiting.say(content[7:])
    assert waiting.wait()


def test_a_cancel_that_it_reads_itself_strikes_it_once(waiting: Waiting) -> None:
    main = threading.get_ident()

    def cancel(_header: dict[str, Any]) -> None:
        waiting.arrival.release()  # as the calls of a run that is cancelled end
        interrupter.raise_in(main, Cancelled, lambda: True)

    waiting.channel.on("cancel", cancel)
    waiting.say(frame("cancel"))
    with pytest.raises(Cancelled):
        waiting.wait()
    assert interrupter._pending is None  # pyright: ignore[reportPrivateUsage]


def test_a_mistake_in_what_is_done_for_a_frame_ends_the_process_and_not_the_wait(waiting: Waiting) -> None:
    waiting.channel.on("odd", lambda header: header["missing"])
    waiting.say(frame("odd"))
    with pytest.raises(SystemExit) as ended:
        waiting.wait()
    assert ended.value.code == 70


def test_the_handler_of_a_signal_may_wait_in_the_midst_of_a_wait(waiting: Waiting) -> None:
    inner = Arrival()
    waiting.channel.on("inner", lambda _: inner.release())
    came: list[bool] = []

    handled = threading.Event()

    def handle(_number: int, _frame: Any) -> None:
        if handled.is_set():
            return
        handled.set()
        waiting.say(frame("inner"))
        came.append(waiting.channel.wait(inner, 20.0, lambda: False))
        waiting.say(frame("outcome"))

    before = signal.signal(signal.SIGUSR1, handle)
    main = threading.get_ident()

    def send() -> None:  # again, since one that comes just before a wait in the kernel does not end it
        eventually(lambda: signal.pthread_kill(main, signal.SIGUSR1) or handled.is_set())

    signalling = waiting.while_it_waits(send)
    try:
        assert waiting.wait()
    finally:
        signalling.join(20.0)
        signal.signal(signal.SIGUSR1, before)
    assert came == [True]
    assert waiting.readers == [MAIN]
    assert not waiting.channel._reading.locked()  # pyright: ignore[reportPrivateUsage]
