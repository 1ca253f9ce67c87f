"""What the child of a process task does with its call: the work itself, as part of the run it belongs to."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pickle
import runpy
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterable, Optional

from farhand.errors import NotSerializable

from . import encoding
from .channel import refused
from .context import Frame, Inner, Recorder, Run, enter, set_root
from .eager import only_reading
from .interrupts import UNRULY
from .processes import read_frame, write_frame
from .upstream import Attempt

Facts = Dict[str, Any]


class Relay(Recorder):
    """Sends what is to be recorded to the process that records."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads = os.fdopen(reads, "rb")
        self._writes = os.fdopen(writes, "wb")
        self._lock = threading.Lock()

    def job(self) -> Facts:
        """What there is to do."""
        return pickle.loads(read_frame(self._reads))

    def begin(self, blobs: Optional[str], recording: bool) -> None:
        """Where files go, and whether anything is recorded."""
        self.blobs = None if blobs is None else Path(blobs)
        self.recording = recording

    def say(self, kind: str, content: Any) -> None:
        """Send one frame."""
        with self._lock:
            write_frame(self._writes, pickle.dumps((kind, content), protocol=5))

    def write(self, text: str, urgent: bool = False) -> None:
        """Append one event line to the run's record."""
        self.say("event", (text, urgent))

    def ask(self, kind: str, args: Dict[str, Any]) -> Any:
        """A secret or a variable, which the parent gets. Raises its refusal."""
        with self._lock:
            write_frame(self._writes, pickle.dumps(("ask", (kind, args)), protocol=5))
            answer, refusal = pickle.loads(read_frame(self._reads))
        if refusal is not None:
            raise refused(*refusal)
        return answer

    def attempt(self, names: Iterable[str]) -> Attempt:
        """An attempt that yields these streams, which the parent gives to those who read it along."""
        made = Attempt(names, write=self._yielded)
        self.say("yields", list(made.values))
        return made

    def _yielded(
        self, name: str, step: str, *, value: Any = None, message: str = "", urgent: bool = False
    ) -> None:
        if step != "value":
            self.say("yielding", (step, message))
            return
        self.say("yielded", (name, _pickled(value, f"a value of the stream {name!r}")))

    def blob_path(self, digest: str) -> Path:
        """The file of a digest: what was saved here, or what the parent finds or fetches."""
        saved = self.saved(digest)
        if saved is not None:
            return saved
        with self._lock:
            write_frame(self._writes, pickle.dumps(("blob", digest), protocol=5))
            path, refusal = pickle.loads(read_frame(self._reads))
        if path is None:
            raise FileNotFoundError(refusal)
        return Path(path)


def _pickled(value: Any, name: str) -> bytes:
    """A value as it leaves this process. Raises `NotSerializable`, naming it."""
    try:
        return pickle.dumps(value, protocol=5)
    except UNRULY as error:  # whatever a class of the user's raises when it is pickled
        raise NotSerializable(f"{name} cannot leave its process: {encoding.text_of(error)}") from error


def work(reads: int, writes: int) -> None:
    """Execute the call and send its value or its exception; ends the process."""
    for fd in (reads, writes):
        os.set_inheritable(fd, False)
    relay = Relay(reads, writes)
    facts = relay.job()
    try:
        outcome = ("value", _pickled(_value(facts, relay), f"the result of {facts['name']}"))
    except BaseException as error:  # noqa: BLE001 - whatever ends user code is the call's outcome
        outcome = ("error", encoding.encode_error(error))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(*UNRULY):  # it may be closed, or another's
            stream.flush()
    relay.say(*outcome)
    os._exit(0)  # threads and exit handlers have no say in when the call ends


def _value(facts: Facts, relay: Relay) -> Any:
    relay.begin(facts["blobs"], facts["recording"])
    sys.path[:] = facts["path"]
    same = {name: facts[name] for name in ("attempt", "called", "hooks_here")}
    run = Run(facts["run"], facts["flow"], relay, ask=relay.ask, **same)
    inner = None if facts["inner"] is None else Inner(*facts["inner"])
    run.attempt_elsewhere = relay.attempt
    frame = Frame(run, facts["key"], facts["name"], None, inner)
    _import(facts)
    step, args, kwargs = pickle.loads(facts["work"])
    relay.say("begins", None)
    enter(frame)
    set_root(frame)
    if step.is_coroutine:
        from . import aio  # noqa: PLC0415 - asyncio is for those who use it

        return aio.run_coroutine(step.body(*args, **kwargs))
    value = step.body(*args, **kwargs)
    run.wait_for_calls()
    return value


def _import(facts: Facts) -> None:
    """Import the task's module as it was imported in the parent; a script is not run again, only read."""
    name, file = facts["module"], facts["file"]
    if name == "__main__":
        _read_script(facts["main"], file)
        return
    module = sys.modules.get(name) or only_reading(name, importlib.import_module, name)
    if file is not None and getattr(module, "__file__", None) != file:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            only_reading(name, spec.loader.exec_module, module)


def _read_script(name: Optional[str], file: Optional[str]) -> None:
    if name is not None:
        sys.modules["__main__"] = only_reading(name, importlib.import_module, name)
        return
    if file is None:
        raise NotSerializable("a process task must stand in a file that its process can import")
    module = ModuleType("__farhand_main__")
    sys.modules["__main__"] = sys.modules["__farhand_main__"] = module
    module.__dict__.update(
        only_reading(os.path.basename(file), runpy.run_path, file, None, "__farhand_main__")
    )
