"""Who reads an engine's channel: whoever waits for a job, and while one runs a thread that stands by."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from farhand.sdk import channel as module
from farhand.sdk.channel import Channel

LENGTH = struct.Struct(">I")
NEVER_S = 600.0


class Ends:
    """A channel, and the socket of its agent. Frames of the type ``said`` are kept, with who read each."""

    def __init__(self) -> None:
        self.agent, engine = socket.socketpair()
        self.said: list[tuple[Any, str]] = []
        self._more = threading.Condition()
        self.channel = Channel(engine.detach())
        self.channel.on("said", self._on_said)

    def _on_said(self, header: dict[str, Any]) -> None:
        with self._more:
            self.said.append((header["word"], threading.current_thread().name))
            self._more.notify()

    def say(self, word: Any, kind: str = "said", **fields: Any) -> None:
        text = json.dumps({"type": kind, "word": word, **fields}).encode()
        self.agent.sendall(LENGTH.pack(len(text)) + text)

    def say_all(self, words: range) -> None:
        for word in words:
            self.say(word)

    def read_until(self, count: int) -> None:
        self.channel.read_until(lambda: len(self.said) >= count)

    def heard(self, count: int) -> None:
        """Wait without reading."""
        with self._more:
            assert self._more.wait_for(lambda: len(self.said) >= count, 20.0), self.said

    @property
    def readers(self) -> list[str]:
        return [reader for _, reader in self.said]

    def asked(self) -> dict[str, Any]:
        stream = self.agent.makefile("rb")
        return json.loads(stream.read(LENGTH.unpack(stream.read(4))[0]))

    def close(self) -> None:
        self.agent.close()
        for thread in threading.enumerate():
            if thread.name == "farhand-channel":
                self.channel._kicks.put(None)  # pyright: ignore[reportPrivateUsage]
                thread.join(20.0)
        os.close(self.channel._fd)  # pyright: ignore[reportPrivateUsage]


stand_by = Channel._stand_by  # pyright: ignore[reportPrivateUsage]


def to_the_end_of_the_file(channel: Channel) -> None:
    with suppress(SystemExit):
        stand_by(channel)


@pytest.fixture
def looks_s(request: pytest.FixtureRequest) -> float:
    return getattr(request, "param", NEVER_S)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch, looks_s: float) -> Iterator[Ends]:
    monkeypatch.setattr(module, "LOOK_S", looks_s)
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(Channel, "_stand_by", to_the_end_of_the_file)
    ends = Ends()
    yield ends
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    ends.close()


MAIN, ASIDE = "MainThread", "farhand-channel"


def test_who_waits_for_a_job_reads_itself(ends: Ends) -> None:
    ends.channel.start()
    ends.say("a job")
    ends.read_until(1)
    ends.say("the next")
    ends.read_until(2)
    assert ends.readers == [MAIN, MAIN]


@pytest.mark.parametrize("looks_s", [0.001], indirect=True)
def test_what_comes_while_a_job_runs_is_read_aside(ends: Ends) -> None:
    ends.channel.start()
    ends.say("a job")
    ends.read_until(1)
    ends.say("cancel")
    ends.heard(2)
    assert ends.readers[1] == ASIDE


@pytest.mark.parametrize("looks_s", [0.001], indirect=True)
def test_who_read_aside_gives_way_after_the_next_frame(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    ends.channel.start()
    ends.say("of a job")
    ends.heard(1)
    monkeypatch.setattr(module, "LOOK_S", NEVER_S)
    count = 1
    while ends.readers[-1] != MAIN:
        count += 1
        threading.Thread(target=ends.say, args=("a job",)).start()
        ends.read_until(count)
    ends.say("the next")
    ends.read_until(count + 1)
    assert ends.readers[-2:] == [MAIN, MAIN]
    assert set(ends.readers[:-2]) == {ASIDE}


def test_an_answer_is_read_at_once_whoever_asked(ends: Ends) -> None:
    ends.channel.start()
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(ends.channel.request("secret", {"name": "x"})))
    asking.start()
    ends.say("", "reply", id=ends.asked()["id"], body={"value": 1})
    asking.join(20.0)
    assert answers == [{"value": 1}]
    ends.channel.send("bell", urgent=True)
    assert ends.asked() == {"type": "bell", "urgent": True}
    ends.say("the outcome of a call")
    ends.heard(1)
    assert ends.readers == [ASIDE]


@pytest.mark.parametrize("looks_s", [0.001], indirect=True)
def test_one_that_looks_no_more_looks_again_once_there_is_a_job(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOKS_MAX", 1)
    parked = threading.Event()
    park = Channel._park  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(Channel, "_park", lambda self, left: (parked.set(), park(self, left)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    waiting = threading.Thread(target=ends.read_until, args=(1,), name=MAIN, daemon=True)
    waiting.start()
    while not ends.channel._reading.locked():  # pyright: ignore[reportPrivateUsage]
        time.sleep(0.001)
    ends.channel.start()
    assert parked.wait(20.0)
    ends.say("a job")
    waiting.join(20.0)
    ends.say("cancel")
    ends.heard(2)
    assert [word for word, _ in ends.said] == ["a job", "cancel"]


@pytest.mark.parametrize("looks_s", [0.001], indirect=True)
def test_what_is_read_just_before_somebody_waits_for_it_is_not_waited_for(ends: Ends) -> None:
    """Who reads had seen nobody, and would have given way after one more frame only."""
    ends.channel.start()
    ends.say("of the job before")
    ends.heard(1)
    looks = 0

    def enough() -> bool:
        nonlocal looks
        looks += 1
        found = len(ends.said) > 1
        if looks == 1:
            ends.say("a job")
            ends.heard(2)
            time.sleep(0.05)  # until it reads again
        return found

    waiting = threading.Thread(target=ends.channel.read_until, args=(enough,), name=MAIN, daemon=True)
    waiting.start()
    waiting.join(20.0)
    assert not waiting.is_alive()


class _Watched(Channel):
    """A channel that lets another thread go on just after it has looked for who waits to read."""

    looked: Any = None

    @property
    def _next(self) -> Any:
        found = self.__dict__["waiting"]
        if self.looked is not None and threading.current_thread().name == ASIDE:
            self.looked()
        return found

    @_next.setter
    def _next(self, turn: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.__dict__["waiting"] = turn


@pytest.mark.parametrize("looks_s", [0.001], indirect=True)
def test_who_says_that_it_waits_just_as_another_gives_way_is_not_left_waiting(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that gave way had seen nobody, and then forgot who had come."""
    ends.channel.__class__ = _Watched
    ends.channel.__dict__["waiting"] = None
    answers = [False, False, True, True]  # relieved by what the main thread waited for, say
    is_relieved = Channel._is_relieved  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(
        Channel, "_is_relieved", lambda self: answers.pop(0) if answers else is_relieved(self)
    )
    waiting = threading.Thread(target=ends.read_until, args=(2,), name=MAIN, daemon=True)

    came = threading.Event()

    def another_comes() -> None:
        ends.channel.looked = None  # pyright: ignore[reportAttributeAccessIssue]
        waiting.start()
        came.set()
        waiting.join(0.1)

    ends.channel.looked = another_comes  # pyright: ignore[reportAttributeAccessIssue]
    ends.say("of a job")
    ends.channel.start()
    assert came.wait(20.0)
    ends.say("a job")
    waiting.join(20.0)
    assert [word for word, _ in ends.said] == ["of a job", "a job"]
    assert not waiting.is_alive()


@pytest.mark.parametrize("looks_s", [0.0005], indirect=True)
def test_every_frame_is_read_once_and_in_order_whatever_comes_between(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOKS_MAX", 2)
    chance = random.Random(7)
    ends.channel.start()
    sent = 0
    for _ in range(300):
        more = chance.choice([1, 1, 1, 2, 5])
        threading.Thread(target=ends.say_all, args=(range(sent, sent + more),)).start()
        if chance.random() < 0.6:
            ends.read_until(sent + 1)
        sent += more
        ends.heard(sent)
    assert [word for word, _ in ends.said] == list(range(sent))
    assert set(ends.readers) == {MAIN, ASIDE}
