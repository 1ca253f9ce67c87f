"""What a worker keeps by digest: runtimes, bundles and blobs, each fetched once and verified."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Awaitable, Callable, Dict, Mapping, Optional, Sequence, Set

from .ahead import Ahead
from .blobs import BlobCache, NotFetched, hex_of
from .checkout import Checkout
from .digests import file_digest
from .inquiries import NotAnswered
from .nearby import Nearby
from .runtimes import ROUTE, Runtimes, newest_first
from .state import StateDirectory
from .transfer import Claim, Corrupt, Transfer, TransferFailed
from .unpacking import remove_tree, unpack

TREES_MAX = 20
"""Unpacked bundles (and runtimes) that are kept."""

_TRIES = 6
_FORBIDDEN = 403
_MISMATCH = 422
_NOT_TAKEN = frozenset({400, 404, 409})
"""What the server answers when the file that was laid for it is none that it can take."""

_NOT_TAKEN_CODES = frozenset({"usage", "not_found", "conflict", "digest_mismatch"})
"""The same as it says it on the session."""


class Cache:
    """Fetches at most once at a time for each digest, in a few threads of its own."""

    def __init__(
        self,
        state: StateDirectory,
        transfer: Transfer,
        python: str,
        blobs: BlobCache,
        ahead: Ahead,
        nearby: Optional[Nearby] = None,
    ) -> None:
        self._state = state
        self._blobs = blobs
        self._transfer = transfer
        self._nearby = nearby
        self._python = python
        self._ahead = ahead
        self._runtimes = Runtimes(state.runtimes, python)
        self._threads = ThreadPoolExecutor(4, "transfer")
        self._uploading = ThreadPoolExecutor(4, "upload")  # apart: no job waits behind them for its code
        self._running: Dict[str, asyncio.Task[Path]] = {}
        self._trees: Dict[str, Path] = {}
        self.children: Set[int] = set()
        self.ask: Optional[Callable[[Claim, str, Dict[str, Any]], Awaitable[Dict[str, Any]]]] = None

    async def runtime(self, digest: str) -> Path:
        """The directory of the unpacked and compiled runtime."""
        return await self._kept("runtime " + digest, lambda: self._fetch_runtime(digest))

    async def ahead(self) -> Optional[str]:
        """The digest of the runtime that was looked for ahead of any server's word."""
        return await asyncio.shield(asyncio.wrap_future(self._ahead.found))

    async def bundle(self, digest: str, claim: Claim) -> Path:
        """The directory of an unpacked, read-only bundle."""
        return await self._kept("bundle " + digest, lambda: self._fetch_bundle(digest, claim))

    def bundle_at_hand(self, digest: str) -> Optional[Path]:
        """The same, where it has been asked for before."""
        return self._trees.get("bundle " + digest)

    async def blob(self, digest: str, claim: Claim, named: bool = False) -> Path:
        """The file of a blob, which stays until the claim is let go.

        ``named``: the server itself has told the job of it.
        """
        self._blobs.pin(digest, claim)
        return await self._once("blob " + digest, lambda: self._fetch_blob(digest, claim, named))

    async def value(self, digest: str, claim: Claim) -> Path:
        """The file of a blob that the server has named to the job, to be read at once and by nobody else.

        Beside the server it is the server's own, which is read as it lies there.
        """
        nearby = self._nearby
        if nearby is not None and nearby.beside:
            known = nearby.known(digest)
            if known is not None:
                return known
            with contextlib.suppress(NotFetched):
                return await self._once("nearby " + digest, lambda: self._find_nearby(nearby, digest))
        return await self.blob(digest, claim, named=True)

    def seen_nearby(self, digest: str, seen: Sequence[int]) -> Optional[Path]:
        """The server's own file of a value, which it has told us of as it was when verified."""
        nearby = self._nearby
        if nearby is None or not nearby.beside or len(seen) != 3:
            return None
        nearby.told(digest, (seen[0], seen[1], seen[2]))
        try:
            return nearby.known(digest)
        except NotFetched:  # it is no digest: the engine that asks for it is told
            return None

    async def checked_out(self, fingerprint: str, manifest: Mapping[str, str], checkout: Checkout) -> Path:
        """The directory of a read-only copy of what a manifest names. Raises `Differs`."""
        name = "checkout " + fingerprint
        return await self._kept(name, lambda: self._copy(fingerprint, manifest, checkout))

    @property
    def fetching(self) -> bool:
        """Whether something is on its way here."""
        return bool(self._running)

    def let_go(self, claim: Claim) -> None:
        """The job of this claim is over: what was fetched for it may go."""
        self._blobs.release(claim)

    async def upload(self, digest: str, source: Path, claim: Claim) -> None:
        """Bring the file of a blob to the server. Raises `TransferFailed`, or OSError when it is lost."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._uploading, self._upload, digest, source, claim)

    async def hand_over(self, digest: str, source: Path, claim: Claim) -> bool:
        """Give the server's own directory the file itself, and have it taken; whether it was.

        An engine has just written it, and nobody else has its path. No copy is kept here: where it lies
        then, it is read as well. Raises `TransferFailed`, or OSError when it is lost.
        """
        nearby, ask = self._nearby, self.ask
        if nearby is None or ask is None or not (nearby.beside and nearby.takes and nearby.answers):
            return False
        with nearby.linked(digest, source) as laid:
            if laid is None:
                return False
            args = {"digest": digest, "token": laid.token, "size": laid.size, "hashed": True}
            try:
                while not (await ask(claim, "laid", args)).get("settled"):
                    pass  # a large one is still being read
            except NotAnswered as error:
                if error.code in _NOT_TAKEN_CODES:
                    return False  # copied or sent, it is looked at once more
                raise
        return True

    def _upload(self, digest: str, source: Path, claim: Claim) -> None:
        if not source.exists():  # what the job was given, it may name again
            if self._transfer.has(digest, claim):
                return
            source = self._blobs.place(digest)
        try:
            if not self._lay(digest, source, claim):
                self._transfer.put(digest, source, claim)
        except TransferFailed as error:
            if error.status == _MISMATCH and file_digest(source) != digest:
                raise NotFetched(f"{digest} is not what it was on this disk") from error
            raise
        with contextlib.suppress(OSError):  # the server has it: a disk that is full only keeps no copy
            self._blobs.take(digest, source)

    def _lay(self, digest: str, source: Path, claim: Claim) -> bool:
        """Bring it into the server's own directory, and have it taken from there; whether it was."""
        if self._nearby is None or not self._nearby.takes:
            return False
        with self._nearby.laid(digest, source) as laid:
            if laid is None:
                return False
            try:
                self._transfer.ask_to_take(digest, laid.token, laid.size, claim)
            except TransferFailed as error:
                if error.status == _MISMATCH:
                    return False  # sent, it is looked at by what arrives
                if error.status not in _NOT_TAKEN:
                    raise
                self._nearby.refused(error)
                return False
        return True

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False)
        self._uploading.shutdown(wait=False)

    # ------------------------------------------------------------ fetching

    async def _kept(self, name: str, fetch: Callable[[], Awaitable[Path]]) -> Path:
        """An unpacked tree; while this agent lives nobody takes one away, so it is looked for once."""
        if name not in self._trees:
            self._trees[name] = await self._once(name, fetch)
        return self._trees[name]

    async def _once(self, name: str, fetch: Callable[[], Awaitable[Path]]) -> Path:
        task = self._running.get(name)
        if task is None:
            return await self._begin(name, fetch)
        try:
            return await asyncio.shield(task)
        except NotFetched as error:
            if not error.refused:
                raise
            return await self._once(name, fetch)  # what was refused to another job may be given to this one

    async def _begin(self, name: str, fetch: Callable[[], Awaitable[Path]]) -> Path:
        task = asyncio.ensure_future(fetch())
        self._running[name] = task
        task.add_done_callback(lambda _: self._running.pop(name, None))
        return await asyncio.shield(task)

    async def _fetch_runtime(self, digest: str) -> Path:
        home = self._runtimes.home(digest)
        mark = self._runtimes.mark(home)
        if not mark.exists():
            await self.ahead()  # which may be fetching it
        if not mark.exists():
            if not home.exists():
                await self._unpack(ROUTE, digest, home)
            if not await self._in_thread(lambda: self._runtimes.came_compiled(home)):
                await self._in_thread(lambda: self._compile(home))
            mark.touch()
        os.utime(home)
        return home

    async def _fetch_bundle(self, digest: str, claim: Claim) -> Path:
        home = self._state.path / "bundles" / hex_of(digest)
        if not home.exists():
            await self._unpack(f"/api/v1/artifacts/{digest}", digest, home, claim, read_only=True)
        os.utime(home)
        return home

    async def _copy(self, fingerprint: str, manifest: Mapping[str, str], checkout: Checkout) -> Path:
        home = self._state.path / "bundles" / hex_of(fingerprint)
        if not home.exists():
            await self._in_thread(lambda: checkout.copy(manifest, home))
        os.utime(home)
        return home

    async def _find_nearby(self, nearby: Nearby, digest: str) -> Path:
        found = await self._in_thread(lambda: nearby.find(digest))
        if not isinstance(found, Path):
            raise NotFetched(f"{digest} does not lie where it should")
        return found

    async def _fetch_blob(self, digest: str, claim: Claim, named: bool) -> Path:
        target = self._blobs.place(digest)

        def bring() -> None:
            if not self._blobs.find(digest):
                self._transfer.get(f"/api/v1/artifacts/{digest}", digest, target, claim, named)
                self._blobs.arrived(digest)

        await self._bring(digest, bring)
        return target

    async def _unpack(
        self, path: str, digest: str, home: Path, claim: Optional[Claim] = None, read_only: bool = False
    ) -> None:
        archive = home.with_suffix(".zip")
        await self._bring(digest, lambda: self._transfer.get(path, digest, archive, claim))
        try:
            await self._in_thread(lambda: unpack(archive, home, read_only))
        except (OSError, zipfile.BadZipFile) as error:
            raise NotFetched(f"cannot unpack {digest}: {error}") from error
        finally:
            archive.unlink(missing_ok=True)

    async def _bring(self, digest: str, bring: Callable[[], None]) -> None:
        """Have a thread get what a digest names, again while that may help. Raises `NotFetched`."""
        for attempt in range(_TRIES):
            try:
                await self._in_thread(bring)
                return
            except TransferFailed as error:
                tries = 2 if isinstance(error, Corrupt) else _TRIES
                if error.final or attempt + 1 >= tries:
                    raise NotFetched(str(error), refused=error.status == _FORBIDDEN) from error
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
        self._blobs.trim()
        for parent in (self._state.path / "bundles", self._state.runtimes):
            for path in newest_first(parent)[TREES_MAX:]:
                remove_tree(path)
