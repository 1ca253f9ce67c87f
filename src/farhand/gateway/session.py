"""One worker's session, without I/O: what may be said when, and what is owed.

A session begins in GREETING, where only `Hello` is allowed. After the welcome it is ATTACHED, where anything
but another `Hello` is. CLOSED is final: whatever still arrives is dropped unread. What the peer breaks raises
`ProtocolViolation`; what it must be told in words is a `Refused`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from farhand_worker import protocol

from ..engine.batches import quick

GREETING = "greeting"
ATTACHED = "attached"
CLOSED = "closed"

_FROM_AGENT = (
    protocol.Heartbeat,
    protocol.Accepted,
    protocol.Event,
    protocol.Request,
    protocol.Drained,
    protocol.Bye,
    protocol.Changed,
    protocol.NoTunnel,
)


class Session:
    """The order of one session and its open hand-offs. Times are monotonic seconds."""

    def __init__(self, times: protocol.Times) -> None:
        self._times = times
        self._handoffs: dict[tuple[str, int], float] = {}
        self.state = GREETING

    def receive(self, text: str) -> list[Any]:
        """The messages in a frame, when they may come now."""
        messages = quick(text)
        if messages is not None and self.state == ATTACHED:  # what is read so may come from an agent
            return messages
        if messages is None:
            messages = list(map(_typed, protocol.decode_each(text)))
        for message in messages:
            if self.state == GREETING and not isinstance(message, protocol.Hello):
                raise protocol.ProtocolViolation(f"a session begins with hello, not {message.type}")
            if self.state == ATTACHED and not isinstance(message, _FROM_AGENT):
                raise protocol.ProtocolViolation(f"{message.type} may not come from a worker now")
        return messages

    def greet(self, hello: protocol.Hello, labels: tuple[str, ...]) -> protocol.Refused | None:
        """Whether this worker can be spoken to at all; a refusal here is final."""
        if not hello.protocol:
            raise protocol.ProtocolViolation("hello names no version of the protocol")
        lowest, highest = min(hello.protocol), max(hello.protocol)
        if highest < protocol.SUPPORTED[0]:
            message = f"this worker speaks protocol {highest}, the server {protocol.SUPPORTED[0]} or newer; "
            return protocol.Refused("protocol", message + "upgrade farhand-worker there", final=True)
        if lowest > protocol.SUPPORTED[1]:
            message = f"this worker speaks protocol {lowest}, the server {protocol.SUPPORTED[1]} or older; "
            return protocol.Refused("protocol", message + "upgrade the server first", final=True)
        if hello.labels is not None and set(hello.labels) != set(labels):
            difference = ", ".join(sorted(set(hello.labels) ^ set(labels)))
            message = f"its labels are not those of its token; they differ in {difference}"
            return protocol.Refused("labels", message, final=True)
        if hello.parallel < 0:
            return protocol.Refused("parallel", "a worker cannot have fewer than 0 slots", final=True)
        return None

    def version(self, hello: protocol.Hello) -> int:
        """The protocol version both sides speak best."""
        return min(max(hello.protocol), protocol.SUPPORTED[1])

    def attached(self) -> None:
        """The welcome is sent."""
        if self.state == GREETING:
            self.state = ATTACHED

    def close(self) -> None:
        """Nothing is read or sent any more."""
        self.state = CLOSED
        self._handoffs.clear()

    def expect(self, job: str, lease: int, now: float) -> None:
        """An assign was sent; it must be accepted within ``handoff_s``."""
        self._handoffs[job, lease] = now + self._times.handoff_s

    def accepted(self, job: str, lease: int) -> None:
        """The agent has the job."""
        self._handoffs.pop((job, lease), None)

    def overdue(self, now: float) -> tuple[str, int] | None:
        """A hand-off that was not accepted in time."""
        return next((handoff for handoff, due_at in self._handoffs.items() if due_at <= now), None)

    def due_at(self) -> float | None:
        """When the next open hand-off is due; they are in the order in which they were sent."""
        return next(iter(self._handoffs.values()), None)


def _typed(message: Any) -> Any:
    """The message, when its fields have the types of the protocol."""
    try:
        return msgspec.convert(vars(message), type(message))
    except msgspec.ValidationError as error:
        raise protocol.ProtocolViolation(f"not a {message.type} of this protocol: {error}") from error
