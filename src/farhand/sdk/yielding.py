"""What a node yields: each ``yield {"loss": 0.3}`` adds to streams, and to series of the run."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Generator

from farhand.errors import NotDelivered

from . import encoding
from .context import current
from .feeds import attempt_of
from .graphs import Member
from .metrics import emit
from .streams import BROKEN, ENDED

Values = Dict[str, Any]


class Yielded:
    """What one attempt of a node has yielded. With ``once`` it yields its other outputs too, each once."""

    def __init__(self, member: Member, *, once: bool = False) -> None:
        self._member = member
        self._once = once
        self._streams = {output.name: output for output in member.provides if output.stream}
        self._rest = {output.name: output for output in member.provides if not output.stream}
        self._attempt = attempt_of(self._streams)
        self._values = self._attempt.values
        self._delivered: Values = {}

    def take(self, point: Any) -> None:
        """Take what was yielded. Raises `NotDelivered` for what the node does not declare so."""
        node = self._member.id
        if not isinstance(point, dict):
            raise NotDelivered(
                f"node {node!r} yields {type(point).__name__}, and may yield only dicts, as in"
                " yield {'loss': 0.3}"
            )
        numbers: Values = {}
        for name, value in point.items():
            if name in self._streams:
                fitting = self._add(name, value)
                if isinstance(fitting, (int, float)):
                    numbers[name] = fitting
            elif self._once and name in self._rest:
                self._deliver(name, value)
            else:
                raise NotDelivered(f"node {node!r} yields {name!r}, which it does not declare as a stream")
        self._report(numbers)

    @contextlib.contextmanager
    def until_the_end(self) -> Generator[None]:
        """Tell those who read along how it ends."""
        try:
            yield
        except BaseException as error:  # an interruption too is an end for them
            self._attempt.end(BROKEN, encoding.summary_of(error))
            raise
        self._attempt.end(ENDED)

    def with_returned(self, value: Any) -> Values:
        """All outputs, those that are no streams returned. Raises `NotDelivered`."""
        rest = self._member._replace(provides=tuple(self._rest.values()))
        return {**self._values, **rest.delivered(value)}

    def complete(self) -> Values:
        """All outputs, each yielded. Raises `NotDelivered`."""
        for name in self._rest:
            if name not in self._delivered:
                raise NotDelivered(f"node {self._member.id!r} did not deliver {name!r}")
        return {**self._values, **self._delivered}

    def _add(self, name: str, value: Any) -> Any:
        fitting = self._streams[name].fits(value, self._member.id)
        self._attempt.add(name, fitting)
        return fitting

    def _deliver(self, name: str, value: Any) -> None:
        if name in self._delivered:
            raise NotDelivered(f"node {self._member.id!r} yields {name!r} twice, and it is no stream")
        self._delivered[name] = self._rest[name].fits(value, self._member.id)

    def _report(self, numbers: Values) -> None:
        frame = current()
        if numbers:
            emit(**numbers)
        elif frame is not None:
            frame.reported()  # what is no number is no series, and a report all the same
