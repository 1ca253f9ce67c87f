"""What a job reads along of the streams of its run: pages, waited for as they are yielded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from ..errors import NotFound
from ..store import Store
from ..store.streams import StreamPage
from .bus import Bus, Notice
from .fleet import Fleet
from .service import Wakeup

WAIT_S_MAX = 30.0

AGAIN = "it was begun again"
NEVER = "nothing of it was kept"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a stream: what comes after a number, of attempt ``tries`` (0: of the newest).

    ``ready``: only whether there is anything to begin with, of an attempt that is not broken.
    """

    key: str
    name: str
    after: int = 0
    tries: int = 0
    ready: bool = False

    @staticmethod
    def read(args: dict[str, Any]) -> Asked:
        """What the arguments of a request mean. Raises KeyError, ValueError."""
        after, tries = int(args.get("after", 0)), int(args.get("tries", 0))
        return Asked(str(args["key"]), str(args["name"]), after, tries, bool(args.get("ready")))


def answer(asked: Asked, page: StreamPage | None) -> dict[str, Any] | None:
    """What is to be said; None while there is nothing new."""
    if asked.ready:
        begun = page is not None and page.state != "broken" and (page.total > 0 or page.state == "ended")
        return {"state": "open"} if begun else None
    if page is None:
        return _broken(NEVER)
    if asked.tries not in (0, page.tries):
        return _broken(AGAIN)
    if page.state == "broken":
        return _broken(page.message)
    state = "ended" if page.state == "ended" and page.last >= page.total else "open"
    if not page.values and state == "open":
        return None
    return {"tries": page.tries, "state": state, "last": page.last, "values": list(page.values)}


def _broken(message: str) -> dict[str, Any]:
    return {"state": "broken", "message": message}


class Streams:
    """Answers jobs that read along."""

    def __init__(self, store: Store, bus: Bus, fleet: Fleet, wakeup: Wakeup) -> None:
        self._store = store
        self._fleet = fleet
        self._wakeup = wakeup
        self._waiting: dict[str, set[asyncio.Event]] = {}
        bus.observe(self._noticed)

    async def read(self, job_id: str, asked: Asked, wait_s: float) -> dict[str, Any]:
        """The answer as soon as there is one; ``{"again": True}`` when there is none within ``wait_s``.

        Raises `NotFound` for a job that is not there.
        """
        said = await self._look(job_id, asked)
        if said is not None:
            return said
        job = await self._store.jobs.get(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        try:
            async with asyncio.timeout(min(wait_s, WAIT_S_MAX)):
                with self._fleet.reading(job.run, job_id) as blocked:
                    if blocked:
                        self._wakeup.set()  # what it keeps may be what a call lacks that comes before a value
                    return await self._waited_for(job_id, job.run, asked)
        except TimeoutError:
            return {"again": True}

    async def _waited_for(self, job_id: str, run: str, asked: Asked) -> dict[str, Any]:
        news = asyncio.Event()
        self._waiting.setdefault(run, set()).add(news)
        try:
            while (said := await self._look(job_id, asked)) is None:
                await news.wait()
                news.clear()
            return said
        finally:
            self._waiting[run].discard(news)
            if not self._waiting[run]:
                del self._waiting[run]

    def _noticed(self, notice: Notice) -> None:
        """Let those look who read along in that run."""
        for news in self._waiting.get(notice.run or "", ()) if self._waiting else ():
            news.set()

    async def _look(self, job_id: str, asked: Asked) -> dict[str, Any] | None:
        return answer(asked, await self._store.streams.page(job_id, asked.key, asked.name, asked.after))
