"""What a worker keeps by digest: runtimes, bundles and blobs, each fetched once and verified."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Awaitable, Callable, Dict, Optional, Set

from .state import StateDirectory
from .transfer import Corrupt, Transfer, TransferFailed

BLOB_BYTES_MAX = 1024 * 1024 * 1024
"""Blobs beyond this go, the longest unused first, when no job needs them."""

TREES_MAX = 20
"""Unpacked bundles (and runtimes) that are kept."""

_TRIES = 6
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")


class NotFetched(Exception):
    """What a job needs could not be brought here; the message says what and why."""


class Cache:
    """Fetches at most once at a time for each digest, in a few threads of its own."""

    def __init__(self, state: StateDirectory, transfer: Transfer, python: str) -> None:
        self._state = state
        self._transfer = transfer
        self._python = python
        self._threads = ThreadPoolExecutor(4, "transfer")
        self._running: Dict[str, asyncio.Task[Path]] = {}
        self._trees: Dict[str, Path] = {}
        self.children: Set[int] = set()

    async def runtime(self, digest: str) -> Path:
        """The directory of the unpacked and compiled runtime."""
        return await self._kept("runtime " + digest, lambda: self._fetch_runtime(digest))

    async def bundle(self, digest: str) -> Path:
        """The directory of an unpacked, read-only bundle."""
        return await self._kept("bundle " + digest, lambda: self._fetch_bundle(digest))

    async def blob(self, digest: str) -> Path:
        """The file of a blob."""
        return await self._once("blob " + digest, lambda: self._fetch_blob(digest))

    @property
    def fetching(self) -> bool:
        """Whether something is on its way here."""
        return bool(self._running)

    async def upload(self, digest: str, job: str, lease: int) -> None:
        """Bring a blob to the server. Raises `TransferFailed`, or FileNotFoundError when it is lost."""
        source = self._state.blobs / hex_of(digest)
        headers = {"Farhand-Job": job, "Farhand-Lease": str(lease)}
        try:
            await self._in_thread(lambda: self._transfer.put(digest, source, headers))
        except FileNotFoundError:
            if not await self._in_thread(lambda: self._transfer.has(digest)):
                raise

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------ fetching

    async def _kept(self, name: str, fetch: Callable[[], Awaitable[Path]]) -> Path:
        """An unpacked tree; while this agent lives nobody takes one away, so it is looked for once."""
        if name not in self._trees:
            self._trees[name] = await self._once(name, fetch)
        return self._trees[name]

    async def _once(self, name: str, fetch: Callable[[], Awaitable[Path]]) -> Path:
        task = self._running.get(name)
        if task is None:
            task = asyncio.ensure_future(fetch())
            self._running[name] = task
            task.add_done_callback(lambda _: self._running.pop(name, None))
        return await asyncio.shield(task)

    async def _fetch_runtime(self, digest: str) -> Path:
        home = self._state.path / "runtime" / hex_of(digest)
        mark = home / f".compiled-{hashlib.sha256(self._python.encode()).hexdigest()[:12]}"
        if not mark.exists():
            if not home.exists():
                await self._unpack("/api/v1/workers/runtime", digest, home)
            await self._in_thread(lambda: self._compile(home))
            mark.touch()
        os.utime(home)
        return home

    async def _fetch_bundle(self, digest: str) -> Path:
        home = self._state.path / "bundles" / hex_of(digest)
        if not home.exists():
            await self._unpack(f"/api/v1/artifacts/{digest}", digest, home, read_only=True)
        os.utime(home)
        return home

    async def _fetch_blob(self, digest: str) -> Path:
        target = self._state.blobs / hex_of(digest)
        if not target.exists():
            await self._get(f"/api/v1/artifacts/{digest}", digest, target)
        os.utime(target)
        return target

    async def _unpack(self, path: str, digest: str, home: Path, read_only: bool = False) -> None:
        archive = home.with_suffix(".zip")
        await self._get(path, digest, archive)
        try:
            await self._in_thread(lambda: _unpack(archive, home, read_only))
        except (OSError, zipfile.BadZipFile) as error:
            raise NotFetched(f"cannot unpack {digest}: {error}") from error
        finally:
            archive.unlink(missing_ok=True)

    async def _get(self, path: str, digest: str, target: Path) -> None:
        for attempt in range(_TRIES):
            try:
                await self._in_thread(lambda: self._transfer.get(path, digest, target))
                return
            except TransferFailed as error:
                tries = 2 if isinstance(error, Corrupt) else _TRIES
                if error.final or attempt + 1 >= tries:
                    raise NotFetched(str(error)) from error
                await asyncio.sleep(0.25 * 2**attempt)
            except OSError as error:
                raise NotFetched(f"cannot store {digest}: {error}") from error

    async def _in_thread(self, work: Callable[[], object]) -> Optional[object]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _compile(self, home: Path) -> None:
        """Compile once for all engines; they then never look at a source file's time."""
        command = [self._python, "-I", "-S", "-m", "compileall", "-q"]
        try:
            process = subprocess.Popen(
                [*command, "--invalidation-mode", "unchecked-hash", str(home)], stdin=subprocess.DEVNULL
            )
        except OSError as error:
            raise NotFetched(f"cannot run {self._python}: {error}") from error
        self.children.add(process.pid)
        try:
            if process.wait() != 0:
                raise NotFetched(f"{self._python} could not compile the runtime; it must be 3.9 or later")
        finally:
            self.children.discard(process.pid)

    # ------------------------------------------------------------ room

    async def trim(self) -> None:
        """Make room. Only called before the first job: nothing kept here is in use then."""
        await self._in_thread(self._trim)

    def _trim(self) -> None:
        total = 0
        for path in _newest_first(self._state.blobs):
            total += path.stat().st_size
            if total > BLOB_BYTES_MAX:
                path.unlink(missing_ok=True)
        for parent in (self._state.path / "bundles", self._state.path / "runtime"):
            for path in _newest_first(parent)[TREES_MAX:]:
                remove_tree(path)


def hex_of(digest: str) -> str:
    """The name a digest has on disk. Raises `NotFetched` for what is no digest."""
    match = _DIGEST.match(digest)
    if match is None:
        raise NotFetched(f"{digest[:80]!r} is no digest")
    return match.group(1)


def remove_tree(path: Path) -> None:
    """Remove a directory, read-only or not."""
    for directory, _, _ in os.walk(path):
        os.chmod(directory, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def _newest_first(directory: Path) -> list[Path]:
    return sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)


def _unpack(archive: Path, home: Path, read_only: bool) -> None:
    temporary = Path(tempfile.mkdtemp(dir=home.parent, prefix=".unpacking-"))
    try:
        with zipfile.ZipFile(archive) as bundle:
            bundle.extractall(temporary)
        if read_only:
            for directory, _, files in os.walk(temporary):
                for name in files:
                    os.chmod(os.path.join(directory, name), 0o444)
                if directory != str(temporary):
                    os.chmod(directory, 0o555)
        os.rename(temporary, home)
        if read_only:
            os.chmod(home, 0o555)
    finally:
        if temporary.exists():
            remove_tree(temporary)
