"""Watches the directory that is served, and takes it anew when its files have changed.

It looks at names, sizes and times of the files once a second, on a thread of its own and never for more
than a twentieth of the time; sooner when somebody asks for a flow that is not there. A change is taken when
nothing has changed for `QUIET_S`, so that an editor or a `git pull` may finish; should the files change while
they are read, they are read once more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path

from ..errors import FarhandError
from ..sdk.closure import Tree
from . import projectfile
from .packing import INSPECT_S, ChangedMeanwhile, Packed, pack
from .projects import Projects
from .service import Service

log = logging.getLogger("farhand")

LOOK_S = 1.0
QUIET_S = 0.3
PATIENCE_S = 5.0
"""So long does somebody wait who asks for what may have been written just now."""
_SHARE = 20

Seen = dict[str, tuple[int, int, int]]
"""Each file's time, size and inode."""


class Watcher(Service):
    """Keeps the flows of one directory up to date."""

    name = "watcher"

    def __init__(self, projects: Projects, root: Path, inspect_s: float = INSPECT_S) -> None:
        super().__init__()
        self._projects = projects
        self._root = root
        self._inspect_s = inspect_s
        self._seen: Seen | None = None  # an empty directory is to be read as well
        self._packed: Packed | None = None
        self._taking: asyncio.Task[None] | None = None
        self._complete = asyncio.Event()
        self._asked = asyncio.Event()
        self._looks = 0  # how many have begun
        self._acted = 0  # the last one of which the consequences are under way
        self._news = asyncio.Event()

    async def ready(self) -> Packed | None:
        """Wait until the flows are read for the first time, but for modules that import slowly."""
        await self._complete.wait()
        return self._packed

    async def news(self, patience_s: float = PATIENCE_S) -> AsyncIterator[None]:
        """Look again now, and say each time that more of what is there may be known.

        Ends when all of it is, or after ``patience_s``; `reading` tells these apart.
        """
        look_wanted = self._looks + 1  # one that has begun may be past a file that was written just now
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        self._asked.set()
        while self._acted < look_wanted or self.reading:
            try:
                await asyncio.wait_for(self._news.wait(), until - loop.time())
            except TimeoutError:
                return
            yield

    @property
    def reading(self) -> bool:
        """Whether files that have changed are being read."""
        return self._seen is None or not (self._taking is None or self._taking.done())

    async def stop(self) -> None:
        """End, and end what is being read."""
        await super().stop()
        await self._abandon()

    async def _work(self) -> None:
        while True:
            began = time.monotonic()
            self._looks += 1
            self._asked.clear()
            seen = await asyncio.to_thread(look, self._root)
            took_s = time.monotonic() - began
            if seen != self._seen:
                self._seen = await self._quiet(seen)
                await self._abandon()  # a module that still imports must not hold up a change
                self._taking = asyncio.create_task(self._take(), name="reading the project")
                self._taking.add_done_callback(lambda _: self._tell())
            self._acted = self._looks
            self._tell()
            await asyncio.sleep(_SHARE * took_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), LOOK_S)

    def _tell(self) -> None:
        """Let those go on who wait for news, each of whom looks for itself at what is new."""
        self._news.set()
        self._news = asyncio.Event()

    async def _quiet(self, seen: Seen) -> Seen:
        """What is there once nothing changes any more."""
        while self._complete.is_set():
            await asyncio.sleep(QUIET_S)
            before, seen = seen, await asyncio.to_thread(look, self._root)
            if before == seen:
                break
        return seen

    async def _abandon(self) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    async def _take(self) -> None:
        """Read the directory; what changes meanwhile is a reason to read it again, at the next look."""
        try:
            async with aclosing(pack(self._root, self._inspect_s, self._packed)) as versions:
                async for packed in versions:
                    await self._projects.serve(self._root, packed)
                    self._packed = packed
                    self._complete.set()
                    self._tell()
        except ChangedMeanwhile as error:
            log.info("%s", error)
            self._seen = None  # as if it had not been read
            return
        except Exception as error:  # whatever is wrong with a directory, the server goes on with what it has
            unexpected = None if isinstance(error, FarhandError) else error
            log.error("%s was not read: %s", self._root, error, exc_info=unexpected)
            if not await self._noted(error):
                self._seen = None
                return
        self._complete.set()

    async def _noted(self, trouble: Exception) -> bool:
        """Whether it could be stored what is wrong: where not, it may be the store that was."""
        try:
            await self._projects.note(self._packed.name if self._packed else "default", str(trouble))
        except FarhandError as error:
            log.error("that could not be stored: %s", error)
            return False
        return True


def look(root: Path) -> Seen:
    """The state of every file that may matter: those beside modules, and what is included."""
    seen: Seen = {}
    try:
        include = projectfile.read(root).include
    except FarhandError:
        include = ()
    tree = Tree(root, include)
    paths = [directory / name for directory, names in tree.walk() for name in names]
    for path in [*paths, *tree.included]:
        try:
            status = os.stat(path)
        except OSError:
            continue
        seen[str(path)] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return seen
