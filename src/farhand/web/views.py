"""Records as the API shows them, and the response class that encodes them.

Parameters and results are JSON text already; they are put into the answer as they are, never parsed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any

import msgspec
from starlette.responses import Response

from ..model import Attempt, Event, Page, Run, TaskRun

_encode = msgspec.json.Encoder().encode
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonResponse(Response):
    """Encodes records (frozen dataclasses) with msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return encoded(content)


def encoded(content: Any) -> bytes:
    """JSON. Text that is not Unicode (lone surrogates of odd bytes) is shown with U+FFFD."""
    try:
        return _encode(content)
    except UnicodeEncodeError:
        return _encode(_as_unicode(content))


def _as_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {_as_unicode(name): _as_unicode(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_unicode(item) for item in value]
    if is_dataclass(value):
        return {field.name: _as_unicode(getattr(value, field.name)) for field in fields(value)}
    return value


@dataclass(frozen=True, slots=True)
class RunView:
    """A run.

    ``name`` is what the flow's ``run_name`` makes of the parameters, empty without one. ``progress`` is what
    the flow said last: ``{"at", "done", "total"?, "message"?}``. ``scheduled_for`` is the fire time of the
    ``schedule`` that started it. A flow that was called inside of a run has a run with a ``parent``, and the
    ``root`` whose job it goes on under. ``result`` is the value itself, or ``{"enc", "size", "digest"?}`` for
    what is not inline JSON; ``result_form`` tells the two apart: json, reference or null.
    """

    id: str
    flow: str
    state: str
    reason: str
    message: str
    params: Any
    created_at: float
    started_at: float | None
    ended_at: float | None
    worker: str | None
    host: str
    name: str
    progress: Any
    attempt: int
    project: str
    origin: str
    bundle: str
    fingerprint: str
    retry_of: str | None
    parent: str | None
    root: str | None
    sweep: str | None
    schedule: str | None
    scheduled_for: float | None
    result: Any
    result_form: str | None
    error: Any


@dataclass(frozen=True, slots=True)
class RunDetail(RunView):
    """A run with all its attempts."""

    attempts: list[Attempt]


def run_view(run: Run) -> RunView:
    """A run for the API."""
    return RunView(*_run_fields(run))


def run_detail(run: Run, attempts: list[Attempt]) -> RunDetail:
    """A run for the API with its attempts."""
    return RunDetail(*_run_fields(run), attempts=attempts)


def _run_fields(run: Run) -> list[Any]:
    """What a view shows, in the order of its fields."""
    shown = list(_as_they_are(run))
    shown[_PARAMS_AT] = msgspec.Raw(run.params.encode() or b"{}")
    shown[_RESULT_AT:] = value_view(run.result), _form(run.result), error_view(run.error)
    return shown


@dataclass(frozen=True, slots=True)
class TaskView(TaskRun):
    """A task call. ``value`` and ``value_form`` are like a run's result; ``message`` says why it does not go
    on."""

    value: Any = None
    error: Any = None
    value_form: str | None = None
    message: str = ""


def task_view(task: TaskRun, message: str = "") -> TaskView:
    """A task run for the API; ``message`` says why it does not go on, where that is so."""
    shown = {field.name: getattr(task, field.name) for field in fields(task)}
    shown |= {"value": value_view(task.value), "error": error_view(task.error)}
    return TaskView(**shown, value_form=_form(task.value), message=message)


def list_view(items: Sequence[Any]) -> dict[str, Any]:
    """A whole list in the form of a page, so that it may become one without a new shape."""
    return {"items": items, "next": None}


def page_view(page: Page[Any], items: list[Any] | None = None) -> dict[str, Any]:
    """A page: ``items`` and the cursor of the next one."""
    return {"items": page.items if items is None else items, "next": page.next}


def value_view(value: dict[str, Any] | None) -> Any:
    """An encoded value: JSON text unparsed, anything else by its description."""
    if value is None:
        return None
    if _form(value) == "json":
        return msgspec.Raw(value["text"].encode())
    shown = {name: value[name] for name in ("enc", "digest") if name in value}
    return shown | {"size": value.get("size", len(value.get("text", "")))}


def _form(value: dict[str, Any] | None) -> str | None:
    if value is None:
        return None
    return "json" if value.get("enc") == "json" and "text" in value else "reference"


def error_view(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """An exception as text; its pickle stays here."""
    if error is None:
        return None
    return {name: item for name, item in error.items() if name != "pickle"}


def notice_view(kind: str, run: str | None, record: Any) -> dict[str, Any]:
    """What an event stream says of a change; whoever wants more asks for it."""
    if isinstance(record, Run):
        shown = {name: getattr(record, name) for name in ("flow", "state", "reason", "message", "worker")}
        return {"kind": kind, "run": record.id} | shown
    if isinstance(record, Event):
        told = ("at", "message", "worker", "details")
        return {"kind": kind, "event": record.kind} | {name: getattr(record, name) for name in told}
    if isinstance(record, str):
        return {"kind": kind, "service" if kind == "service" else "worker": record}
    return {"kind": kind, "run": run}


_NAMES = [field.name for field in fields(RunView)]
_PARAMS_AT, _RESULT_AT = _NAMES.index("params"), _NAMES.index("result")  # its form and the error follow it
_as_they_are = attrgetter(*_NAMES[: _RESULT_AT + 1])
