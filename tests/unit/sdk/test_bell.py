"""How often an engine rings its bell."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from farhand.sdk import channel as channel_module
from farhand.sdk.channel import Channel
from farhand.sdk.inlet import Inlet


class Ends:
    """A channel, and the agent's end of it."""

    def __init__(self) -> None:
        self.agent, self.engine = socket.socketpair()
        self.channel = Channel(self.engine.fileno())
        self._inlet = Inlet(self.agent.fileno())

    def read(self) -> list[str]:
        """The types of what is there."""
        self._inlet.read()
        return [str(header["type"]) for header in iter(self._inlet.frame, None)]

    def close(self) -> None:
        self.agent.close()
        self.engine.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def test_a_bell_is_not_rung_again_before_it_was_read(ends: Ends) -> None:
    for _ in range(3):
        ends.channel.ring()
    assert ends.read() == ["bell"]
    ends.channel.ring()
    assert ends.read() == ["bell"]


def test_what_was_sent_after_a_bell_and_lies_unread_does_not_stand_for_it(ends: Ends) -> None:
    ends.channel.ring()
    assert ends.read() == ["bell"]
    ends.channel.send("blocked", blocked=True)
    ends.channel.ring()
    assert ends.read() == ["blocked", "bell"]


def test_where_nobody_tells_what_was_read_each_bell_rings(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError("not for a socket")

    monkeypatch.setattr(channel_module.fcntl, "ioctl", refuse)
    for _ in range(2):
        ends.channel.ring()
    assert ends.read() == ["bell", "bell"]
