"""``emit`` and ``progress``: numbers of a run as they come."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Generator, Optional, TypeVar

from . import events
from .context import current

T = TypeVar("T")


def emit(**numbers: Any) -> None:
    """Add a point to numeric series: ``emit(loss=0.3)``. Outside of a run it does nothing but check.

    Raises TypeError for what is no number.
    """
    values: Dict[str, Any] = {}
    for name, number in numbers.items():
        if isinstance(number, (str, bytes)):
            raise TypeError(f"emit({name}=…) takes a number")
        value = float(number)
        finite = value == value and abs(value) != float("inf")
        values[name] = value if finite else str(value)  # JSON has no such number; readers take the text
    frame = current()
    if frame is not None:
        frame.reported()
    if frame is not None and values and frame.run.recorder.recording:
        body = {
            "at": time.time(),
            "values": values,
            "task": frame.key or None,
            "nested": frame.nested,
        }
        frame.run.recorder.write(events.line("metric", body))


def progress(done: float, total: Optional[float] = None, message: Optional[str] = None) -> None:
    """Say how far the run, or the task that calls this, has come: ``progress(3, 10, "reading")``.

    Outside of a run it does nothing but check. Raises TypeError and ValueError for what is no progress.
    """
    values = [float(done)] if total is None else [float(done), float(total)]
    if not all(0 <= value < float("inf") for value in values) or total == 0:
        raise ValueError(
            "progress(done, total) takes numbers that are not negative, and a total above nothing"
        )
    frame = current()
    if frame is not None:
        frame.reported()
    if frame is not None and frame.run.recorder.recording:
        body = {
            "at": time.time(),
            "done": values[0],
            "total": None if total is None else values[1],
            "message": None if message is None else str(message),
            "task": frame.key or None,
            "nested": frame.nested,
        }
        frame.run.recorder.write(events.line("progress", body))


def drained(function: Callable[..., Generator[Any, None, T]], *args: Any, **kwargs: Any) -> T:
    """Run a generator function to its return value; each ``yield {"loss": 0.3}`` is an ``emit``."""
    points = function(*args, **kwargs)
    while True:
        try:
            point = next(points)
        except StopIteration as end:
            return end.value
        if not isinstance(point, dict):
            points.close()
            raise TypeError(
                f"{function.__name__} may yield only dicts of numbers, as in yield {{'loss': 0.3}}"
            )
        emit(**point)
