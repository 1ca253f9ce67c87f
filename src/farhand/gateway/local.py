"""The server's own processors: the worker program, started beside the server and dialling over loopback.

It outlives a killed server, and the next one finds it by the lock in its state directory: it rewrites the
file that holds its address, and the worker comes back by itself. Where that server was started with another
number of slots, the worker is told so. A worker that holds the lock and does not come back in time is frozen:
it is killed, and a new one sweeps up after it. An orderly stop ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import psutil

from farhand_worker.protocol import Times

from ..engine.fleet import Fleet
from ..engine.keys import write_private
from ..engine.member import ONLINE
from ..engine.service import Service
from ..errors import FarhandError
from ..model import LOCAL_WORKER

log = logging.getLogger("farhand")

_OURS = "FARHAND_"
_OF_THIS_MACHINE = frozenset(f"FARHAND_WORKER_{name}" for name in ("CPUS", "GPUS", "RAM_MB", "PASS_ENV"))
_LOOK_S = 0.2
_START_S = 10.0
_RESPAWN_S = 0.5
_RESPAWN_S_MAX = 30.0


class LocalWorker(Service):
    """Keeps one worker program running under the name ``server``."""

    name = "local worker"

    def __init__(
        self,
        home: Path,
        url: str,
        token: Callable[[], Awaitable[str]],
        parallel: int,
        cwd: Path | None,
        times: Times,
        fleet: Fleet,
        dismiss: Callable[[], Awaitable[bool]],
        resize: Callable[[int], Awaitable[None]],
        pin: str = "",
        files: tuple[int, int] | None = None,
    ) -> None:
        """``dismiss`` forgets the worker, where there is to be none, and says whether that could be done;
        ``resize`` gives it so many slots.

        ``files``: how many files user code may have open, where that is other than for this process.
        """
        super().__init__()
        self._dismiss = dismiss
        self._resize = resize
        self._files = files
        self._directory = home / "local"
        self._started_with = self._directory / "parallel"
        """With how many slots it was started, or by a later server: a person may have given it others."""
        self._url = url
        self._token = token
        self._parallel = parallel
        self._cwd = cwd
        self._times = times
        self._fleet = fleet
        self._pin = pin
        self._process: subprocess.Popen[bytes] | None = None

    async def _work(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._directory / "url", self._url.encode())
        while (pid := holder(self._directory)) is not None:
            process = _process(pid)
            if process is not None and self._parallel == 0:
                _signal(process, signal.SIGTERM)  # it finishes what it has, and ends
            await self._guard(process)
            await asyncio.sleep(_LOOK_S)
        if self._parallel == 0:  # other machines have all the work
            await self._have_none()
        delay_s = _RESPAWN_S
        while True:
            began_at = time.monotonic()
            self._process = self._spawn(await self._token())
            await self._guard(_process(self._process.pid))
            code = self._process.wait()
            delay_s = _RESPAWN_S if time.monotonic() - began_at > 60 else min(delay_s * 2, _RESPAWN_S_MAX)
            told = self._directory / "log"
            log.error("the local worker ended with %s, see %s; another starts in %.1f s", code, told, delay_s)
            await asyncio.sleep(delay_s)

    async def _have_none(self) -> None:
        """Forget the worker of an earlier start, once no lease of it is left; others have all the work."""
        while True:
            if await self._dismiss():
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(self._times.lease_s)

    async def _guard(self, process: psutil.Process | None) -> None:
        """Return when the worker has ended; kill it when it does not come back in time."""
        if process is None:
            return
        patience_s = self._times.lease_s + self._times.margin_s
        deadline = time.monotonic() + max(patience_s, _START_S)
        while True:
            if self._is_attached():
                deadline = time.monotonic() + patience_s
                await self._size()
            elif time.monotonic() > deadline:
                log.error("the local worker (pid %s) is not heard of; it is killed", process.pid)
                _signal(process, signal.SIGKILL)
                deadline += patience_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(_ended(process), self._times.heartbeat_s)
                return

    async def _size(self) -> None:
        """Give the worker of an earlier start the slots that this one was started with."""
        if self._parallel == 0 or _number_in(self._started_with) == self._parallel:
            return
        try:
            await self._resize(self._parallel)
        except FarhandError as error:
            log.warning("the local worker has not %s slots yet: %s", self._parallel, error)
            return
        write_private(self._started_with, str(self._parallel).encode())

    def _is_attached(self) -> bool:
        member = self._fleet.get(LOCAL_WORKER)
        return member is not None and member.state == ONLINE and member.link is not None

    def _spawn(self, token: str) -> subprocess.Popen[bytes]:
        """Start the worker. In one breath: a stop of this loop never leaves a process nobody knows of."""
        write_private(self._started_with, str(self._parallel).encode())
        reading, writing = os.pipe()
        arguments = ["--url-file", str(self._directory / "url"), "--token-fd", str(reading)]
        arguments += ["--state-dir", str(self._directory), "--name", LOCAL_WORKER]
        arguments += ["--parallel", str(self._parallel), "--orphan-s", str(self._times.reattach_s)]
        if self._pin:
            arguments += ["--pin", self._pin]
        if self._cwd is not None:
            arguments += ["--cwd", str(self._cwd)]
        # -P: nothing in the directory the server runs in may shadow a module.
        command = [sys.executable, "-P", "-m", "farhand_worker", *arguments]
        try:
            with (self._directory / "log").open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment(os.environ),
                    pass_fds=(reading,),
                    start_new_session=True,
                )
            if self._files is not None and sys.platform == "linux":
                resource.prlimit(process.pid, resource.RLIMIT_NOFILE, self._files)
            os.write(writing, token.encode())
            return process
        finally:
            os.close(reading)
            os.close(writing)

    async def end(self) -> None:
        """Stop the worker with grace: its engines end, its jobs are queued again."""
        await self.stop()
        pids = {holder(self._directory)}
        if self._process is not None and self._process.poll() is None:
            pids.add(self._process.pid)  # it may not have come as far as its lock
        found = [process for process in map(_process, pids) if process is not None]
        await asyncio.gather(*map(self._end, found))
        if self._process is not None:
            self._process.wait()

    async def _end(self, process: psutil.Process) -> None:
        # The first signal drains, the second ends; two of the same kind could merge into one.
        _signal(process, signal.SIGTERM)
        _signal(process, signal.SIGINT)
        try:
            await asyncio.wait_for(_ended(process), self._times.grace_s + self._times.margin_s)
        except TimeoutError:
            log.error("the local worker (pid %s) did not end in time; it is killed", process.pid)
            _signal(process, signal.SIGKILL)
            await _ended(process)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a local worker: the server's, without its secrets and other workers' settings."""
    return {k: v for k, v in environ.items() if not k.startswith(_OURS) or k in _OF_THIS_MACHINE}


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # of an earlier version: nothing is known
        return None


def holder(directory: Path) -> int | None:
    """The process that holds the lock of a state directory, 0 while it has no name, None when it is free."""
    try:
        with (directory / "lock").open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return int(file.read().split()[0])
    except FileNotFoundError:
        return None
    except (ValueError, IndexError):
        return 0  # it was taken just now, and says no name yet
    return None


def _process(pid: int | None) -> psutil.Process | None:
    """The process of an id, known by its start from a later one that has the id anew. None: it has ended."""
    try:
        return psutil.Process(pid) if pid else None
    except psutil.NoSuchProcess:
        return None


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


async def _ended(process: psutil.Process) -> None:
    """Return when a process has ended, which need not be a child of ours."""
    if sys.platform != "linux":
        await _gone(process)
        return
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(descriptor, over.set)
    try:
        if process.is_running():  # else the descriptor is of another process, under the same id
            await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _gone(process: psutil.Process) -> None:
    """The same by looking, where the kernel has no descriptors for processes."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
