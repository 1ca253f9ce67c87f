"""The runtime that a worker is likely to need, looked for while the agent is loaded.

It is what the server has now, which a thread asks for and fetches unless it is here; of a server that does
not answer, that of last time. That a server is not reached, or refuses, is not said here: whoever dials it
says so, and a runtime that is named is fetched then.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional
from zipfile import BadZipFile

from .address import BadAddress
from .blobs import NotFetched
from .options import Options
from .runtimes import ROUTE, Runtimes
from .unpacking import unpack

if TYPE_CHECKING:
    from .transfer import Transfer


class Ahead:
    """``found`` is its digest, None where there is none; by then it is here, compiled if it came so.

    ``ready`` is told of one that engines can run.
    """

    def __init__(self, options: Options, runtimes: Runtimes, ready: Callable[[Path], None]) -> None:
        self.found: Future[Optional[str]] = Future()
        self._ready = ready
        self._options = options
        self._runtimes = runtimes

    def look(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="runtime", daemon=True).start()

    def _run(self) -> None:
        digest = None
        try:
            with contextlib.suppress(BadAddress, NotFetched, OSError, BadZipFile):
                digest = self._fetched()
        finally:  # whatever went wrong: others wait for it
            self.found.set_result(digest)

    def _fetched(self) -> Optional[str]:
        from .transfer import Transfer, TransferFailed

        transfer = Transfer(self._options.token, self._options.address(), self._options.pin)
        try:
            digest = transfer.digest_at(ROUTE)
        except TransferFailed:
            digest = None
        digest = digest or self._runtimes.last()
        try:
            if digest is not None:
                self._bring(transfer, digest)
            return digest
        except TransferFailed:
            return None
        finally:
            transfer.close()

    def _bring(self, transfer: Transfer, digest: str) -> None:
        home, archive = self._runtimes.home(digest), self._runtimes.archive(digest)
        if not home.exists():
            transfer.get(ROUTE, digest, archive)
            unpack(archive, home, read_only=False)
            archive.unlink()
        mark = self._runtimes.mark(home)
        if mark.exists() or self._runtimes.came_compiled(home):
            mark.touch()
            self._ready(home)
