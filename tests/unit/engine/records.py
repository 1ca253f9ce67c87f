"""Records and doubles that the tests of the services share."""

from __future__ import annotations

from typing import Any

from farhand.model import Ask, Flow, Job, JobSettings, Run
from farhand_worker import protocol

FLOW = Flow(
    name="weather",
    project="default",
    entry="weather:weather",
    description="",
    schema={"type": "object", "properties": {}, "additionalProperties": False},
    ask=Ask(),
    settings=JobSettings(),
    bundle="sha256:" + "0" * 64,
    fingerprint="",
)


def a_job(id: str = "j1", **fields: Any) -> Job:
    """A queued job."""
    values: dict[str, Any] = {
        "run": f"run-of-{id}",
        "kind": "run",
        "state": "queued",
        "flow": "weather",
        "entry": "weather:weather",
        "args": {"enc": "json", "text": "{}"},
        "bundle": FLOW.bundle,
        "ask": Ask(),
        "settings": JobSettings(),
        "age_at": 1.0,
        "created_at": 1.0,
    }
    return Job(id=id, **{**values, **fields})


def a_run(id: str = "r1", **fields: Any) -> Run:
    """A queued run."""
    values: dict[str, Any] = {
        "flow": "weather",
        "state": "queued",
        "reason": "",
        "message": "",
        "params": "{}",
        "created_at": 1.0,
    }
    return Run(id=id, **{**values, **fields})


def a_hello(name: str = "box", **fields: Any) -> protocol.Hello:
    """What an agent says first."""
    values: dict[str, Any] = {
        "protocol": [1, 1],
        "version": "0.1.0",
        "instance": "i1",
        "boot_id": "b1",
        "host": "machine",
        "python": "3.11.9",
        "parallel": 2,
    }
    return protocol.Hello(name=name, **{**values, **fields})


class FakeLink:
    """A session that remembers what went through it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.expected: list[tuple[str, int]] = []
        self.closed: str | None = None

    def send(self, message: Any) -> None:
        if self.closed is None:
            self.sent.append(message)

    def expect(self, job: str, lease: int) -> None:
        self.expected.append((job, lease))

    def close(self, reason: str) -> None:
        self.closed = self.closed or reason

    def of(self, kind: type) -> list[Any]:
        """What of one kind was sent."""
        return [message for message in self.sent if isinstance(message, kind)]


class Clock:
    """A clock that moves when it is told to, in place of a module's ``time``."""

    def __init__(self, monotonic: float = 1000.0, epoch: float = 1.7e9) -> None:
        self.now = monotonic
        self._epoch = epoch - monotonic

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self._epoch + self.now
