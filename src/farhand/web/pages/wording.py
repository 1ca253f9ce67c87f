"""Words and numbers as people read them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from ...comparison import ABSENT
from ...model import Attempt, Run, TaskRun
from ...sizes import size as size

_TEXT_MAX = 20_000
_LINE_MAX = 60
_COMPARED_MAX = 300


def moment(at: float | None) -> str:
    """A moment in UTC, for browsers without our script; the script shows it in local time."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(at: float) -> str:
    """The time of day, UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]


def duration(seconds: float | None) -> str:
    """A length of time in its two largest units: 850 ms, 12.3 s, 4 min 05 s, 2 h 10 min, 3 d 4 h."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def mebibytes(count: int) -> str:
    """So many MiB in a unit that leaves few digits."""
    return size(count * 1024**2)


def number(value: float) -> str:
    """A number with at most four significant digits."""
    return f"{value:.4g}"


NEEDS_SHOWN = 8


def needed(tasks: Sequence[TaskRun]) -> dict[str, str]:
    """The numbers of the calls that each call needed, by its key, as far as they are among these."""
    numbers = {task.key: task.number for task in tasks}
    found: dict[str, str] = {}
    for task in tasks:
        known = sorted(numbers[key] for key in task.needs or () if key in numbers)
        if known:
            more = f" and {len(known) - NEEDS_SHOWN} more" if len(known) > NEEDS_SHOWN else ""
            found[task.key] = ", ".join(map(str, known[:NEEDS_SHOWN])) + more
    return found


def progress(said: dict[str, float | str] | None) -> str:
    """How far something has come: done of total, and the words that came with it."""
    if said is None:
        return ""
    total = said.get("total")
    share = f"{said['done']:g}" if total is None else f"{said['done']:g} of {total:g}"
    return f"{share}, {said['message']}" if said.get("message") else share


def compared(value: object, name: str = "") -> str:
    """A fact of a run beside the same of others; ``name`` says which, where it has a form of its own."""
    if value is ABSENT:
        return "–"
    if name in _FORMS:
        return _FORMS[name](value)
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _COMPARED_MAX else f"{text[:_COMPARED_MAX]}…"


def said(text: str) -> str:
    """A message as a sentence: a capital first, one full stop at the end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def short(identifier: str) -> str:
    """Enough of an id or digest to recognise it."""
    bare = identifier.removeprefix("sha256:")
    return bare[:12]


def pretty(text: str) -> str:
    """JSON text for reading: a line a member, what is short on one line.

    Text that is long is cut, and text that is not JSON is left as it is.
    """
    if len(text) > _TEXT_MAX:
        return f"{text[:_TEXT_MAX]}… ({size(len(text))} in all)"
    try:
        value = json.loads(text)
    except ValueError:
        return text
    line = _line(value)
    if len(line) <= _LINE_MAX:
        return line
    if not isinstance(value, dict):
        return json.dumps(value, indent=2, ensure_ascii=False)
    members = (f"  {_line(name)}: {_member(item)}" for name, item in value.items())
    return "{\n" + ",\n".join(members) + "\n}"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _member(value: object) -> str:
    line = _line(value)
    if len(line) <= _LINE_MAX:
        return line
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n  ")


def sentence(run: Run, attempts: list[Attempt]) -> str:
    """What state a run is in and why, as one sentence."""
    text = _STATES.get(run.state, run.state)
    why = "" if run.state == "completed" else run.message or _words(run)
    if run.state in ("starting", "running", "completed"):
        text += f" on {run.worker}" if run.worker else ""
        text += f", attempt {run.attempt}" if run.attempt > 1 else ""
        said_already = f"{run.state} on {run.worker}"
        if why.startswith(said_already):
            text, why = text + why.removeprefix(said_already), ""
    if why:
        text += f": {why}"
    if any(attempt.overlap_possible for attempt in attempts):
        text += " (an earlier attempt may have overlapped with a later one)"
    text = text.rstrip()
    return text if text.endswith((".", ")", "!", "?", "…")) else f"{text}."


def _words(run: Run) -> str:
    """The reason in words, where it says more than the state does."""
    told = run.state in ("starting", "running") or run.reason == run.state
    return "" if told else run.reason.replace("_", " ")


_STATES = {
    "scheduled": "Scheduled",
    "queued": "Queued",
    "starting": "Starting",
    "running": "Running",
    "waiting": "Waiting",
    "cancelling": "Cancelling",
    "completed": "Completed",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "crashed": "Crashed",
    "skipped": "Skipped",
}

_FORMS: dict[str, Callable[..., str]] = {"took": duration, "code": short, "environment": short}
