"""What changes around a worker while it runs: what is installed, and what is checked out.

It looks once a second, on a thread. A change counts when nothing has changed for `QUIET_S` after it, so that
an installation or a pull may finish; then the server is told. It says loudly when the checkout has none of
the code that the server's flows are of.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any, Awaitable, Callable, Dict, List, Mapping, Optional, Tuple

from .blobs import NotFetched
from .cache import Cache
from .checkout import Checkout, Seen
from .distributions import digest_of, installed
from .manifest import BadManifest, read_manifest
from .packages import difference, keep, read_kept
from .protocol import Changed, Compare
from .transfer import Claim

CLAIM = Claim("checkout", 0)
"""In whose name manifests are fetched: no job's, but what the server asks to compare."""

LOOK_S = 1.0
QUIET_S = 0.3
_log = logging.getLogger("farhand.worker")

_Looked = Tuple[Tuple[int, ...], Seen, str]


class Surroundings:
    """Watches the checkout, if there is one, and the directories that engines import from."""

    def __init__(
        self,
        checkout: Optional[Checkout],
        cache: Cache,
        send: Callable[[Any], None],
        environment_changed: Callable[[str], None],
        kept: Path,
    ) -> None:
        """``kept`` is the file with what was installed here when it was last looked at."""
        self.environment = ""
        self.git = "" if checkout is None else checkout.git
        self._checkout = checkout
        self._cache = cache
        self._send = send
        self._environment_changed = environment_changed
        self._paths: List[str] = []
        self._kept = kept
        self._installed = read_kept(kept)
        self._unnamed = False
        self._wanted: Dict[str, None] = {}
        self._manifests: Dict[str, Mapping[str, str]] = {}
        self._differs: Dict[str, List[str]] = {}
        self._poked = asyncio.Event()
        self._looking = asyncio.Lock()
        self._first: Optional[asyncio.Future[None]] = None
        self._nothing = False

    async def watch(self) -> None:
        """Look, for ever."""
        looked: Optional[_Looked] = None
        while True:
            await self._fetch()
            seen = await self._look()
            if seen != looked or self._unnamed or self._wanted.keys() - self._differs.keys():
                looked = await self._at_rest(seen)
                await self._tell()
            try:
                await asyncio.wait_for(self._poked.wait(), LOOK_S)
            except asyncio.TimeoutError:  # noqa: UP041 - another class before 3.11
                continue
            self._poked.clear()

    def poke(self) -> None:
        """Look now, and compare anew."""
        self._poked.set()

    def compare(self, message: Compare) -> None:
        """The server asks which of these its checkout has."""
        if self._checkout is not None:
            self._wanted = dict.fromkeys(message.fingerprints)
            self._manifests = {name: m for name, m in self._manifests.items() if name in self._wanted}
            self._differs = {}
            self.poke()

    @property
    def code(self) -> str:
        """The checkout, its commit, and the files in which it differs from what the server asks for."""
        if self._checkout is None:
            return "bundles, by digest"
        files = sorted({name for files in self._differs.values() for name in files})
        more = f" and {len(files) - FILES_NAMED} more" if len(files) > FILES_NAMED else ""
        differs = f"differs in {', '.join(files[:FILES_NAMED])}{more}" if files else ""
        return "; ".join(
            filter(None, (" at ".join(filter(None, (str(self._checkout.root), self.git))), differs))
        )

    def engine_began(self, environment: str, paths: List[str]) -> None:
        """What an engine found installed when it was started; a change is told when its names are known."""
        self._paths = paths
        if self._installed is None:
            self._note_environment(environment, [])
            if self._first is None:  # at once: the first change is named by what was there before
                self._first = asyncio.ensure_future(self._list())
        elif environment != self.environment:
            self._unnamed = True
            self.poke()

    async def tree(self, fingerprint: str) -> Mapping[str, str]:
        """The manifest of a fingerprint. Raises `NotFetched`."""
        if fingerprint not in self._manifests:
            path = await self._cache.blob(fingerprint, CLAIM)
            try:
                self._manifests[fingerprint] = read_manifest(path.read_bytes())
            except (BadManifest, OSError) as error:
                raise NotFetched(f"the manifest {fingerprint} cannot be read: {error}") from error
            finally:
                self._cache.let_go(CLAIM)
        return self._manifests[fingerprint]

    # ------------------------------------------------------------ inside

    async def _fetch(self) -> None:
        for fingerprint in [name for name in self._wanted if name not in self._manifests]:
            try:
                await self.tree(fingerprint)
            except NotFetched as error:
                _log.warning("cannot compare the checkout with %s: %s", fingerprint, error)

    async def _look(self) -> _Looked:
        return await _in_thread(self._look_now)

    def _look_now(self) -> _Looked:
        times: List[int] = []
        for path in self._paths:
            try:
                times.append(os.stat(path).st_mtime_ns)
            except OSError:
                times.append(0)
        if self._checkout is None:
            return tuple(times), (), ""
        names = {name for manifest in self._manifests.values() for name in manifest}
        return tuple(times), self._checkout.look(names), self._checkout.git

    async def _at_rest(self, seen: _Looked) -> _Looked:
        while True:
            await asyncio.sleep(QUIET_S)
            before, seen = seen, await self._look()
            if seen == before:
                return seen

    async def _tell(self) -> None:
        if self._paths:
            await self._look_at_environment()
        checkout = self._checkout
        if checkout is None:
            return
        manifests = {name: self._manifests[name] for name in self._wanted if name in self._manifests}
        differs = await _in_thread(lambda: {name: checkout.differing(m) for name, m in manifests.items()})
        git = checkout.git
        if differs != self._differs or git != self.git:
            self._differs, self.git = differs, git
            shown = {name: files[:FILES_MAX] for name, files in differs.items()}
            self._send(Changed(git=git, differs=shown))
            self._say()

    async def _list(self) -> None:
        """What there is now, unless that is known; nothing is told of it."""
        async with self._looking:
            if self._installed is None:
                await self._learn()

    async def _look_at_environment(self) -> None:
        async with self._looking:
            self._unnamed = False
            before, listed = self._installed, await self._learn()
            self._note_environment(digest_of(listed), [] if before is None else difference(before, listed))

    async def _learn(self) -> List[str]:
        """List what is installed, and keep the list if it is another."""
        listed: List[str] = await _in_thread(lambda: installed(self._paths))
        if listed != self._installed:
            self._installed = listed
            await _in_thread(lambda: keep(self._kept, listed))
        return listed

    def _say(self) -> None:
        """Loudly, when nothing here is of use; once, until that changes."""
        nothing = bool(self._differs) and all(self._differs.values())
        if nothing and not self._nothing:
            files = sorted({name for files in self._differs.values() for name in files})
            _log.error(
                "THIS CHECKOUT CAN RUN NONE OF THE SERVER'S FLOWS: it differs in %s; bring it to the server's"
                " version, with `git pull` for example",
                ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else ""),
            )
        elif self._differs and not nothing:
            have = sum(not files for files in self._differs.values())
            _log.info("the checkout has %d of %d versions that the server asks for", have, len(self._differs))
        self._nothing = nothing

    def _note_environment(self, digest: str, changes: List[str]) -> None:
        if digest == self.environment:
            return
        known, self.environment = self.environment, digest
        if known or changes:
            named = f": {', '.join(changes)}" if changes else ""
            _log.info("what is installed here has changed%s; new engines see it", named)
        self._environment_changed(digest)
        self._send(Changed(environment=digest, installed=changes or None))


FILES_NAMED = 5
FILES_MAX = 20
"""So many differing files are named for each fingerprint."""


def _in_thread(work: Callable[[], Any]) -> Awaitable[Any]:
    return asyncio.get_running_loop().run_in_executor(None, work)
