"""A flow called in a plain script, notebook or test: it runs here, and its journal goes to the inbox."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from farhand.errors import Cancelled

from . import drive, encoding, events, parameters, telling
from .checkpoints import Ledger
from .context import Frame, Recorder, Run, enter, home, leave
from .deadlines import Limits
from .drive import Procedure
from .ids import new_id
from .interrupts import is_interruption, uninterrupted
from .journal import Journal, warn
from .keyboard import keyboard
from .output import streams
from .steps import Step, declared_by

_PROJECT = re.compile(r"^\s*(?:project|name)\s*=\s*[\"']([a-z0-9][a-z0-9._-]{0,62})[\"']", re.MULTILINE)
_CONCLUDE = "result"
_SOON_S = 0.5
_INTERRUPTED = 130
"""The exit code of a program that Ctrl-C has ended."""


def run_script(step: Step[Any], bound: Any) -> Any:
    """Run a flow from its call to its value or exception, with its retries; an ``async def`` is awaited."""
    if step.is_async:
        from . import aio  # noqa: PLC0415 - asyncio is for those who use it

        return aio.run(_conducted(step, bound))
    return drive.run(_conducted(step, bound))


def run_here(step: Step[Any], bound: Any, watch: Optional[Callable[[str], None]] = None) -> Any:
    """The same from plain code, with a loop of its own for an ``async def``.

    ``watch`` is given each line of the record, on the thread that reports it.
    """
    if step.is_async:
        from . import aio  # noqa: PLC0415 - asyncio is for those who use it

        return aio.run_on_new_loop(_conducted(step, bound, watch))
    return drive.run(_conducted(step, bound, watch))


@uninterrupted
def _conducted(step: Step[Any], bound: Any, watch: Optional[Callable[[str], None]] = None) -> Procedure[Any]:
    in_main = threading.current_thread() is threading.main_thread()
    depth = keyboard.depth  # this procedure is never interrupted, but while its driver does what it asks for
    script = _Script(step, bound)
    try:
        if in_main:
            keyboard.open()
        frame = script.begin(watch)
        try:
            return (yield from _with_retries(step, frame, bound))
        except BaseException as error:  # an interruption, or sys.exit(): recorded, and passed on
            _fail(frame.run, error)
            raise
    finally:
        script.end()
        if in_main:
            keyboard.close(depth)


class _Script:
    """The run of one call of a flow: what is set up for it, wholly or not at all, and taken down again."""

    def __init__(self, step: Step[Any], bound: Any) -> None:
        self._step = step
        self._bound = bound
        self._run: Optional[Run] = None
        self._token: Any = None

    def begin(self, watch: Optional[Callable[[str], None]]) -> Frame:
        """The record is begun, and what the flow calls belongs to it."""
        step, run_id = self._step, new_id()
        recorder = _recorder(step, run_id, self._bound.arguments)
        recorder.watch = watch
        ledger = Ledger(remember=step.options.retries > 0)
        run = self._run = Run(run_id, step.name, recorder, ledger=ledger, hooks_here=True)
        if recorder.recording:
            streams.install(tee=True)
        run.declared = declared_by(step)
        frame = Frame(run, "", step.name)
        self._token = enter(frame)
        return frame

    def end(self) -> None:
        """The record is closed, and hooks are told."""
        run = self._run
        if run is None:
            return
        self._close(run)
        if run.end:
            summary = {**run.end, "params": parameters.export(dict(self._bound.arguments))}
            telling.call_hooks(self._step, run.end["state"], {**whose(self._step), **summary})

    def _close(self, run: Run) -> None:
        leave(self._token)
        if run.recorder.recording:
            streams.uninstall()
        if run.calls:
            run.pool.close()
        run.recorder.close()


@uninterrupted
def _with_retries(step: Step[Any], frame: Frame, bound: Any) -> Procedure[Any]:
    run, tries = frame.run, 0
    while True:
        tries += 1
        try:
            value = yield _body(step, frame, bound)
        except Exception as error:  # any exception of user code is a failed attempt
            if tries > step.options.retries or not step.options.retry_on.allows(error):
                raise
            text = f"attempt {tries} of {step.options.retries + 1} failed"
            run.log(f"{text}: {encoding.summary_of(error)}", "warning")
            run.ledger.restart()
        else:
            _complete(run, value)
            return value
        yield step.options.retry_delay.delay_s(tries)


def _body(step: Step[Any], frame: Frame, bound: Any) -> Callable[[], Any]:
    """What one attempt of the flow calls, or awaits."""
    limits = Limits(frame, step.options.timeout_s, step.options.silence_timeout_s)
    if step.is_async:
        from . import aio  # noqa: PLC0415 - asyncio is for those who use it

        return lambda: aio.body(step, bound.args, bound.kwargs, limits)
    return lambda: _once(step, limits, bound)


def _once(step: Step[Any], limits: Limits, bound: Any) -> Any:
    run = limits.frame.run
    body: Callable[[], Any] = lambda: step.body(*bound.args, **bound.kwargs)  # noqa: E731
    try:
        value = limits.run(body)
    except BaseException as error:  # whatever ended the body, its calls end too
        run.pool.drop_waiting(Cancelled("the flow has ended"))
        run.interrupt_calls(Cancelled)
        _let_calls_end(run, error)
        raise
    run.wait_for_calls()
    return value


def _let_calls_end(run: Run, error: BaseException) -> None:
    """Wait for the calls that were told to end; some sit in C and cannot hear it."""
    soon_s = min(_SOON_S, run.grace_s)
    if run.pool.wait(soon_s):
        return
    if isinstance(error, KeyboardInterrupt):
        warn(f"interrupted; calls have up to {run.grace_s:g} s to end; Ctrl-C again ends the script at once")
    run.pool.wait(run.grace_s - soon_s)


def whose(step: Step[Any]) -> Dict[str, Any]:
    """What hooks are told of where a flow comes from."""
    return {"flow": step.name, "project": _origin(step)[1], "worker": None}


def _ended(run: Run, told: Dict[str, Any]) -> None:
    """Remember the end for the hooks."""
    run.end = {
        "id": run.id,
        "attempt": run.attempt,
        "created_at": run.created_at,
        "started_at": run.created_at,
        "ended_at": time.time(),
        **told,
    }


def _complete(run: Run, value: Any) -> None:
    _ended(run, telling.result_of(value))
    if not run.recorder.recording:
        run.concluded = True
        return
    streams.finish_all()
    digests = []
    try:
        body, digests = encoding.encode(value, run.recorder.blobs)
    except encoding.NotSerializable as error:
        run.log(f"the result is not recorded: {error}", "warning")
        body = {"enc": "json", "text": "null"}
    body, digests = without_secrets(run, body, digests)
    _conclude(run, events.line(_CONCLUDE, {"state": "completed", "at": time.time(), "value": body}, digests))


def _conclude(run: Run, line: str) -> None:
    """The last line of the record."""
    run.concluded = True
    run.recorder.write(line, urgent=True)


def _said(error: BaseException) -> str:
    """The message of a run that this error has ended; Ctrl-C has no text, nor what a loop makes of it."""
    if is_interruption(error) and not str(error):
        return "the script was interrupted"
    return encoding.summary_of(error)


def _fail(run: Run, error: BaseException) -> None:
    if run.concluded:
        return
    interrupted = is_interruption(error)
    body: Dict[str, Any] = {
        "state": "cancelled" if interrupted else "failed",
        "at": time.time(),
        "reason": "interrupted" if interrupted else telling.reason_of(error),
        "message": _said(error),
        "error": encoding.encode_error(error),
    }
    _ended(run, telling.failure_of(error, body["state"], body["reason"]))
    if interrupted:
        _have_the_end_said(run)
    if not run.recorder.recording:
        return
    streams.finish_all()
    _conclude(run, events.line(_CONCLUDE, body))


def _have_the_end_said(run: Run) -> None:
    """A Ctrl-C that nobody catches ends the script with a sentence instead of a traceback.

    Whoever has a hook of their own keeps it, and so does whoever types at the interpreter.
    """
    if sys.excepthook is not sys.__excepthook__ or hasattr(sys, "ps1") or sys.flags.interactive:
        return
    recorded = "is recorded as cancelled" if run.recorder.recording else "is cancelled"

    def hook(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        warn(f"interrupted; run {run.id} of {run.flow} {recorded}")
        raise SystemExit(_INTERRUPTED)

    sys.excepthook = hook


def without_secrets(run: Run, body: Dict[str, Any], digests: List[str]) -> Tuple[Dict[str, Any], List[str]]:
    """A result as it may be recorded: what holds a secret and cannot be masked in part is left out."""
    if run.masker is None or (body["enc"] == "json" and "text" in body):
        return body, digests
    if not run.withholds(body):
        return body, digests
    run.log("the result is not recorded: it holds a secret", "warning")
    return {"enc": "json", "text": "null"}, []


# ---------------------------------------------------------------- the journal


def _recorder(step: Step[Any], run_id: str, arguments: Dict[str, Any]) -> Recorder:
    if os.environ.get("FARHAND_RECORD", "1") == "0":
        return Recorder()
    try:
        return Journal(home(), run_id, _first_record(step, run_id, arguments))
    except OSError as error:
        why = error.strerror or error
        warn(f"this run is not recorded: {home()} cannot be written ({why}); set FARHAND_HOME elsewhere")
        return Recorder()


def _first_record(step: Step[Any], run_id: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
    file, project = _origin(step)
    return {
        "run": run_id,
        "flow": step.name,
        "project": project,
        "params": parameters.export(dict(arguments)),
        "name": step.name_of_run(arguments),
        "at": time.time(),
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "python": ".".join(map(str, sys.version_info[:3])),
        "file": file,
    }


def _origin(step: Step[Any]) -> Tuple[Optional[str], str]:
    code = getattr(step.function, "__code__", None)
    if code is None or not os.path.exists(code.co_filename):
        return None, "default"
    file = Path(code.co_filename).absolute()
    return str(file), _project_of(file.parent)


def _project_of(directory: Path) -> str:
    """The project's name in the nearest farhand.toml; ``default`` where there is none."""
    for place in (directory, *directory.parents):
        settings = place / "farhand.toml"
        if settings.is_file():
            match = _PROJECT.search(settings.read_text(encoding="utf-8", errors="replace"))
            return match[1] if match else "default"
    return "default"
