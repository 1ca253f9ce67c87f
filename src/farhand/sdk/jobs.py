"""The engine's loop: one job at a time, from a channel, in a process that is put back after each."""

from __future__ import annotations

import mimetypes
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from farhand_worker.distributions import environment_digest

from . import events, loading, loggers, restore, secrets, sharing
from .bounds import Bounds
from .channel import Channel
from .context import STOPPED
from .forks import on_fork
from .output import streams
from .runner import Job

Header = Dict[str, Any]

_STOPPED_CODE = 143
_UNLIMITED = float("inf")

WEIGHED_AFTER_S = 0.02
"""No job fills a gigabyte in less, and to be told how large a process is takes as long as some jobs do."""

PRELOADED = (loggers, secrets, sharing, mimetypes)
"""Loaded with the engine, so that nothing of a project can take the place of what they import."""


def _where(environment: str) -> Dict[str, Any]:
    """What is said of this process: it is the same for all its jobs."""
    return {
        "pid": os.getpid(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "host": os.uname().nodename,
        "environment": environment,
    }


class Engine:
    """Executes the jobs that its agent sends. ``serve()`` returns only by ending the process."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._channel = Channel(fd)
        self._jobs: queue.SimpleQueue[Optional[Header]] = queue.SimpleQueue()
        self._terms: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._job: Optional[Job] = None
        self._to_come = 0
        """Jobs that were handed over and have not begun."""
        self._early_cancel: Optional[str] = None
        self._early_arm = False
        self._lock = threading.Lock()
        self._root: Optional[Path] = None
        self._root_text = ""
        self._base_path: List[str] = []
        self._where = ""
        self._snapshot: Any = None
        self._bounds = Bounds()
        self._unweighed_s = WEIGHED_AFTER_S
        on_fork(self._after_fork)

    def serve(self) -> None:
        """Say ready, then work until ``quit``."""
        sys.argv[:] = [sys.argv[0]]
        self._base_path = list(sys.path)
        streams.install(tee=False)
        signal.signal(signal.SIGTERM, lambda number, _frame: self._terms.put(number))
        threading.Thread(target=self._obey_sigterm, name="farhand-term", daemon=True).start()
        self._channel.on("job", self._on_job)
        self._channel.on("quit", lambda _: self._jobs.put(None))
        self._channel.on("cancel", self._on_cancel)
        self._channel.on("arm", self._on_arm)
        self._channel.on("outcome", self._on_outcome)
        self._channel.on("proceed", self._on_proceed)
        self._channel.on("heard", self._on_heard)
        self._channel.start()
        where = _where(environment_digest(self._base_path))
        self._where = events.members(where)
        self._channel.send("ready", **where, paths=self._base_path)
        retire = False
        while True:
            self._channel.read_until(lambda: not self._jobs.empty())
            header = self._jobs.get()
            if header is None:
                self._quit(retire)
                return
            retire = self._execute(header) or retire

    def _execute(self, header: Header) -> bool:
        began = time.monotonic()
        root = self._enter_bundle(header["bundle_dir"])
        job = Job(header, self._channel, root, self._where)
        with self._lock:
            self._job, cancel, self._early_cancel = job, self._early_cancel, None
            self._to_come -= 1
            armed, self._early_arm = self._early_arm, False
        if armed:
            job.spool.armed(0)
        if cancel is not None:
            job.cancel(cancel)
        retire = job.run(self._snapshot)
        with self._lock:
            self._job = None
        retire = retire or not self._bounds.kept()
        retire = retire or self._has_grown(header.get("memory_bytes_max") or _UNLIMITED, began)
        if job.stopped:
            os._exit(_STOPPED_CODE)
        self._channel.send("done", retire=retire)
        return retire

    def _has_grown(self, bytes_max: float, began: float) -> bool:
        """Whether this process is too large to be kept; looked at when its jobs have had time to fill it."""
        self._unweighed_s += time.monotonic() - began
        if self._unweighed_s < WEIGHED_AFTER_S:
            return False
        self._unweighed_s = 0.0
        return restore.memory_bytes() > bytes_max

    def _enter_bundle(self, text: str) -> Path:
        if self._root is not None and text == self._root_text:
            return self._root
        if self._root is not None:
            loading.forget_modules_of(self._root)
        self._root, self._root_text = Path(text), text
        sys.path[:] = loading.import_roots(self._root) + self._base_path
        self._snapshot = restore.Snapshot()
        return self._root

    def _quit(self, retire: bool) -> None:
        """End; an engine that user threads still live in ends without waiting for them."""
        if retire:
            os._exit(0)
        streams.uninstall()

    def _after_fork(self) -> None:
        if self._job is not None:
            self._job.spool.after_fork()

    # ------------------------------------------------------------ from the channel

    def _on_job(self, header: Header) -> None:
        with self._lock:
            self._to_come += 1
        self._jobs.put(header)

    def _on_cancel(self, header: Header) -> None:
        reason = str(header.get("reason") or "cancelled")
        with self._lock:
            job = self._job
            if job is None and self._to_come:  # else it is of a job that has just ended
                self._early_cancel = reason
        if job is not None:
            job.cancel(reason)

    def _on_arm(self, header: Header) -> None:
        with self._lock:
            job = self._job
            self._early_arm = job is None  # of a job that has ended, or of one that has not begun
        if job is not None:
            job.spool.armed(header["read"], header.get("acked"))

    def _on_heard(self, _header: Header) -> None:
        job = self._job
        if job is not None:
            job.heard()

    def _on_outcome(self, header: Header) -> None:
        job = self._job
        if job is not None:
            path = header.get("path")
            job.placer.arrived(header["key"], header["body"], None if path is None else Path(path))

    def _on_proceed(self, header: Header) -> None:
        job = self._job
        if job is not None:
            job.placer.proceed(header["n"])

    def _obey_sigterm(self) -> None:
        """Ask the job's code to end: once more if a cancel is pending, else as a stop of this engine.

        On a thread of its own, since a signal handler may not take the locks that the main thread holds.
        """
        while True:
            self._terms.get()
            job = self._job
            if job is None:
                os._exit(_STOPPED_CODE)
            job.cancel(job.cancel_reason or STOPPED)
