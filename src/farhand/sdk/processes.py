"""Process tasks, ``@task(process=True)``: each call runs in a child process of its own.

The child is a new interpreter, not a fork: it imports the module of the task, gets the arguments as a pickle
and sends back frames (events of the run, questions, in the end its outcome). What it prints is read here and
belongs to the call. It dies with this process, and is killed with all it has started when the call is
cancelled or takes too long. A child that ends without an outcome is `ProcessDied`, which says how.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, List, Optional

from farhand.errors import FarhandError, NotSerializable, ProcessDied

from . import encoding
from .context import current
from .deadlines import GiveUp, Limits, Words
from .feeds import attempt_of
from .interrupts import interrupter, uninterrupted
from .restore import descendants
from .secrets import secret, variable
from .streams import BROKEN

if TYPE_CHECKING:
    from .calls import Call
    from .context import Frame
    from .upstream import Attempt

LENGTH = struct.Struct(">Q")
_CHILD = str(Path(__file__).with_name("process_child.py"))
_RUNTIME = str(Path(__file__).parent.parent.parent)
_READ_BYTES = 64 * 1024
_YIELDING = ("yields", "yielded", "yielding")


def run_in_child(made: Call, limits: Optional[Limits], give_up: GiveUp) -> Any:
    """The value of a call, from a process of its own. Raises what it raised, or `ProcessDied`.

    Its limits count from when the child has imported what it is to execute.
    """
    child = _Child(made)
    try:
        child.hand_over()
        if limits is None:
            return child.outcome()
        _importing(limits.frame).run(child.begin, give_up)
        return limits.run(child.outcome, give_up)
    except BaseException as error:  # an interruption too is an end for those who read along
        child.broke_off(error)
        raise
    finally:
        child.end()


def _importing(frame: Frame) -> Limits:
    """The limit of an import. It may be silent meanwhile."""
    words = Words(frame.name, "{name} was still importing its module after {limit_s:g} s", "")
    return Limits(frame, frame.run.import_s, None, words)


def _job(made: Call) -> bytes:
    """What the child needs to know. Raises `NotSerializable`."""
    step, run = made.step, made.run
    try:
        work = pickle.dumps((step, made.args, made.kwargs), protocol=5)
    except Exception as error:
        raise NotSerializable(
            f"{step.name} cannot be handed to a process of its own: {error}; its function must stand at the "
            "top of a module, and its arguments must be picklable"
        ) from error
    module = sys.modules.get(step.function.__module__)
    facts: Dict[str, Any] = {
        "path": list(sys.path),
        "module": step.function.__module__,
        "file": getattr(module, "__file__", None),
        "main": getattr(getattr(module, "__spec__", None), "name", None),
        "work": work,
        "run": run.id,
        "flow": run.flow,
        "attempt": run.attempt,
        "called": run.called,
        "hooks_here": run.hooks_here,
        "inner": None if made.inner is None else tuple(made.inner),
        "key": made.key,
        "name": step.name,
        "blobs": str(run.recorder.blobs) if run.recorder.blobs is not None else None,
        "recording": run.recorder.recording,
    }
    return pickle.dumps(facts, protocol=5)


class _Child:
    """One child process, from its start to its end."""

    def __init__(self, made: Call) -> None:
        self._made = made
        self._job = _job(made)
        self._frames = bytearray()
        self._partial = {"stdout": b"", "stderr": b""}
        self._ended: Optional[Any] = None
        self._begun = False
        self._attempt: Optional[Attempt] = None
        self._thread = threading.get_ident()
        self._woken, self._waker = os.pipe()
        theirs, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-u", _CHILD, _RUNTIME, str(theirs), str(theirs_out), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs, theirs_out),
            )
        finally:
            os.close(theirs)
            os.close(theirs_out)
        self._streams: Dict[int, str] = {
            getattr(self._process, name).fileno(): name for name in ("stdout", "stderr")
        }
        self._streams[self._from] = "frames"
        self._waiting = [*self._streams, self._woken]
        interrupter.wakers[self._thread] = self._wake

    def _wake(self) -> None:
        os.write(self._waker, b"!")

    def hand_over(self) -> None:
        """Send the job; a child that is gone already is seen when its outcome is missing."""
        self._send(self._job)

    def _send(self, content: bytes) -> None:
        try:
            with open(self._to, "wb", closefd=False) as stream:
                write_frame(stream, content)
        except BrokenPipeError:
            return

    def begin(self) -> None:
        """Relay what the child says until it begins with the call, or has ended."""
        self._relay(lambda: self._begun)

    def outcome(self) -> Any:
        """Relay what the child says until it has ended; its value, or its exception."""
        self._relay(lambda: False)
        self._print_rest()
        return self._result()

    def _relay(self, enough: Callable[[], bool]) -> None:
        while len(self._waiting) > 1 and self._ended is None and not enough():
            for fd in select.select(self._waiting, [], [])[0]:
                content = os.read(fd, _READ_BYTES)
                if fd == self._woken:
                    continue
                if not content:
                    self._waiting.remove(fd)
                elif self._streams[fd] == "frames":
                    self._frames += content
                    self._obey()
                else:
                    self._print(self._streams[fd], content)

    def _print_rest(self) -> None:
        """What the child printed before its outcome came; nothing is waited for."""
        for fd, name in self._streams.items():
            while name != "frames" and select.select([fd], [], [], 0)[0]:
                content = os.read(fd, _READ_BYTES)
                if not content:
                    break
                self._print(name, content)
            if self._partial.get(name):
                self._print(name, b"\n")

    def _print(self, name: str, content: bytes) -> None:
        lines, newline, rest = (self._partial[name] + content).rpartition(b"\n")
        self._partial[name] = rest
        if newline:
            getattr(sys, name).write(lines.decode("utf-8", "replace") + "\n")

    def _obey(self) -> None:
        """The whole frames that have come."""
        while len(self._frames) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._frames)[0]
            if len(self._frames) < end:
                return
            kind, content = pickle.loads(bytes(self._frames[LENGTH.size : end]))
            del self._frames[:end]
            if kind == "event":
                self._reported()
                self._made.run.recorder.write(*content)
            elif kind in _YIELDING:
                self._reported()
                self._take(kind, content)
            elif kind == "blob":
                self._send(pickle.dumps(self._blob(content)))
            elif kind == "ask":
                self._send(pickle.dumps(_answer(*content)))
            elif kind == "begins":
                self._begun = True
            else:
                self._ended = (kind, content)

    def _take(self, kind: str, content: Any) -> None:
        """What the child yields, given to those who read it along as if it were yielded here."""
        if kind == "yields":
            self._attempt = attempt_of(content)
        elif self._attempt is not None and kind == "yielded":
            self._attempt.add(content[0], pickle.loads(content[1]))
        elif self._attempt is not None:
            self._attempt.end(*content)

    def broke_off(self, error: BaseException) -> None:
        """Tell those who read along, unless the child has told them how it ended."""
        if self._attempt is not None:
            self._attempt.end(BROKEN, encoding.summary_of(error))

    def _reported(self) -> None:
        """What the child says, this call has said."""
        frame = current()
        if frame is not None:
            frame.reported()

    def _blob(self, digest: str) -> Any:
        try:
            return str(self._made.run.recorder.blob_path(digest)), None
        except (OSError, FarhandError) as error:
            return None, str(error)

    def _result(self) -> Any:
        if self._ended is None:
            raise ProcessDied(f"the process of {self._made.step.name} ended: {said(self._process.wait())}")
        kind, content = self._ended
        if kind == "value":
            return pickle.loads(content)
        raise encoding.decode_error(content)

    @uninterrupted
    def end(self) -> None:
        """Kill the child and what it has started, if it is there yet, and leave nothing open."""
        interrupter.wakers.pop(self._thread, None)
        if self._process.poll() is None:  # else the id may be another's, and what it started is ours by now
            for pid in (*descendants(self._process.pid), self._process.pid):
                _kill(pid)
        self._process.wait()
        streams: List[Optional[BinaryIO]] = [self._process.stdout, self._process.stderr]  # type: ignore[list-item]
        for stream in streams:
            if stream is not None:
                stream.close()
        for fd in (self._woken, self._waker, self._to, self._from):
            os.close(fd)


def _answer(kind: str, args: Dict[str, Any]) -> Any:
    """A secret or a variable for the child, as this process gets and hides it; or the refusal."""
    try:
        return {"value": {"secret": secret, "variable": variable}[kind](args["name"])}, None
    except FarhandError as error:
        return None, (error.code, str(error))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def said(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit {code}, without an outcome"
    hint = ", possibly out of memory" if code == -signal.SIGKILL else ""
    return f"signal {-code}{hint}"


def write_frame(stream: Any, content: bytes) -> None:
    """Length and content, at once."""
    stream.write(LENGTH.pack(len(content)) + content)
    stream.flush()


def read_frame(stream: Any) -> bytes:
    """The content of the next frame. Raises EOFError."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError("the other side is gone")
    return stream.read(LENGTH.unpack(head)[0])
