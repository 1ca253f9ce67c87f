"""What an attempt begins with: an engine, the code that it runs, and a directory to work in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Callable, Optional

from .blobs import NotFetched
from .checkout import Differs
from .engine import Ended, Engine, Key, Occupant
from .host import Host
from .protocol import IMPORT, Assign
from .transfer import Claim


class NotStarted(NotFetched):
    """The engine ended before it could be given the job: how is in ``end``."""

    def __init__(self, end: Ended) -> None:
        super().__init__(f"the engine did not start: {end.text}")
        self.end = end


def why_not(error: Exception) -> str:
    """Why an attempt cannot begin, after a `NotFetched` or an OSError."""
    return f"this worker cannot prepare it: {error}" if isinstance(error, OSError) else str(error)


async def code_tree(host: Host, assign: Assign, claim: Claim) -> Path:
    """The tree that a job runs from: of the bundle, or of the checkout where there is one."""
    fingerprint = assign.fingerprint
    if host.checkout is None or host.surroundings is None or not fingerprint:
        return await host.cache.bundle(assign.bundle, claim)
    manifest = await host.surroundings.tree(fingerprint)
    try:
        return await host.cache.checked_out(fingerprint, manifest, host.checkout)
    except Differs as error:
        host.surroundings.poke()
        raise NotFetched(str(error)) from error


def key_of(host: Host, assign: Assign) -> Key:
    """What kind of engine a job takes."""
    settings = assign.settings
    secrets = tuple(map(str, settings.get("secrets") or ()))
    alone = f"{assign.job} {assign.lease}" if settings.get("isolated") else ""
    devices = None if assign.devices is None else tuple(assign.devices)
    return Key(host.runtime, assign.bundle, assign.strict, secrets, alone, assign.cpus, devices)


class Preparation:
    """Of one attempt. ``fetch_args`` begins to fetch what its arguments name, and gives what is soon here."""

    def __init__(
        self,
        host: Host,
        assign: Assign,
        claim: Claim,
        occupant: Occupant,
        fetch_args: Callable[[], Optional[asyncio.Task[None]]],
    ) -> None:
        self._host = host
        self._assign = assign
        self._claim = claim
        self._occupant = occupant
        self._fetch_args = fetch_args
        self.manifest: Optional[Path] = None
        self.scratch: Optional[Path] = None

    def at_hand(self) -> Optional[Engine]:
        """The same at once, where there is a warm engine and the code is here; most short jobs find both."""
        host, assign = self._host, self._assign
        if self._fetch_args() is not None or host.checkout is not None or assign.kind == IMPORT:
            return None
        bundle = host.cache.bundle_at_hand(assign.bundle)
        engine = None if bundle is None else host.pool.warm(key_of(host, assign), self._occupant)
        if bundle is None or engine is None:
            return None
        self.bundle = bundle
        try:
            self._take_scratch()
        except OSError:
            host.pool.release(engine, retire=False)
            raise
        return engine

    async def engine(self) -> Engine:
        """An engine that is ready, once the code is here too. Raises `NotFetched`, or OSError."""
        pool, key = self._host.pool, key_of(self._host, self._assign)
        engine = pool.warm(key, self._occupant) or await pool.cleared(key, self._occupant)
        if engine is None:
            return await self._both()
        try:
            await self._fetch_code()
        except BaseException:  # a cancellation too: the engine goes back before anything else
            self._host.pool.release(engine, retire=False)
            raise
        return engine

    async def _both(self) -> Engine:
        """A new engine, and the code that it needs once it is ready: each is seen to while the other is."""
        starting = asyncio.ensure_future(self._start_engine())
        try:
            await self._fetch_code()
        except BaseException:  # a cancellation too: nobody would end the start of the engine
            starting.add_done_callback(self._give_back)
            starting.cancel()
            raise
        engine = await starting
        if engine.end is not None:
            raise NotStarted(engine.end)
        return engine

    async def _start_engine(self) -> Engine:
        host = self._host
        runtime = await host.cache.runtime(host.runtime)
        return await host.pool.start(key_of(host, self._assign), runtime, self._occupant)

    def _give_back(self, starting: asyncio.Task[Engine]) -> None:
        """There is no code for the engine that is here already."""
        if not starting.cancelled() and starting.exception() is None:
            self._host.pool.release(starting.result(), retire=False)

    async def _fetch_code(self) -> None:
        host, assign = self._host, self._assign
        arriving = self._fetch_args()
        self.bundle = await code_tree(host, assign, self._claim)
        if assign.kind == IMPORT and assign.fingerprint:
            self.manifest = await host.cache.blob(assign.fingerprint, self._claim)
        if arriving is not None:  # should it not come, the engine that asks for it is told
            await asyncio.wait({arriving})
        self._take_scratch()

    def _take_scratch(self) -> None:
        if self._host.cwd is None:
            self.scratch = self._host.scratch.take()

    def clear(self, in_order: bool) -> bool:
        """Give the directory back; false where it has to be removed, by `clear_at_last`."""
        return self.scratch is None or (in_order and self._host.scratch.keep(self.scratch))

    async def clear_at_last(self) -> None:
        """Remove the directory: what a job left there may be large, and heartbeats do not wait for it."""
        if self.scratch is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._host.scratch.remove, self.scratch)
