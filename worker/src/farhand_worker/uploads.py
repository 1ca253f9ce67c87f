"""What reports name, brought to the server before the lines that name it are sent."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Callable, Coroutine, Set, Tuple

from .blobs import NotFetched, hex_of
from .cache import Cache
from .reports import Reports
from .transfer import Claim, TransferFailed

_AGAIN_S = 5.0
_log = logging.getLogger("farhand.worker")


class Uploads:
    """Those on their way. ``done`` has reports looked at again after each; ``beat_s`` bounds the pauses."""

    def __init__(
        self,
        cache: Cache,
        background: Callable[[Coroutine[Any, Any, None]], None],
        done: Callable[[], None],
        beat_s: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._background = background
        self._done = done
        self._beat_s = beat_s
        self._under_way: Set[Tuple[str, int, str]] = set()

    def want(self, reports: Reports) -> None:
        """Bring what the next lines of these reports wait for, unless that is under way or lost."""
        for digest in reports.wanted:
            upload = (reports.job, reports.lease, digest)
            if upload not in self._under_way and digest not in reports.lost:
                self._under_way.add(upload)
                self._background(self._bring(reports, digest))

    @property
    def _again_s(self) -> float:
        return min(_AGAIN_S, self._beat_s())

    async def _bring(self, reports: Reports, digest: str) -> None:
        claim = Claim(reports.job, reports.lease)
        try:
            while not reports.gone:
                try:
                    await self._bring_once(reports, digest, claim)
                    reports.uploaded.add(digest)
                    return
                except (FileNotFoundError, NotFetched):
                    reports.lost.add(digest)  # the lines before the one that names it are good
                    return
                except (TransferFailed, OSError) as error:  # of this machine, such as too many open files
                    if reports.gone:
                        return
                    _log.warning("job %s: %s; trying again in %g s", claim.job, error, self._again_s)
                    await asyncio.sleep(self._again_s)
        finally:
            self._under_way.discard((*claim, digest))
            self._done()

    async def _bring_once(self, reports: Reports, digest: str, claim: Claim) -> None:
        source = Path(reports.outgoing, hex_of(digest))
        if not (reports.is_own_value(digest) and await self._cache.hand_over(digest, source, claim)):
            await self._cache.upload(digest, source, claim)
