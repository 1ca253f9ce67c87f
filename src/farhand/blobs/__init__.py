"""Content-addressed files in a directory: ``sha256:<hex>`` is the name, and the only name, of a blob.

A blob appears whole or not at all: it is written beside its place, synced, checked against its digest and
renamed. Writers of the same content do not disturb each other, since whoever renames last puts the same
bytes there.

A blob is deleted when no record names it and nobody has put it or asked for it for a while: whoever is about
to name a blob has sent it, or asked whether it is here, and both make it young again.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path

from farhand_worker.nearby import PROBE, look

from ..errors import NotFound, Usage
from .arriving import Body
from .laid import Laid, Own
from .landing import PIECE_BYTES, Landing, land, make_directory
from .parts import Parts

DIGEST_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")

_NOTED_MAX = 1024


def digest_of(content: bytes) -> str:
    """The digest of ``content``."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Blobs:
    """The blobs of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._place = lru_cache(_NOTED_MAX)(self._found_place)
        self.parts = Parts(self._place)
        self.laid = Laid(self._place)
        self._verified: OrderedDict[str, list[int]] = OrderedDict()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Where the blob is. Raises `Usage` for what is no digest and `NotFound` for what is not here."""
        path = self._place(digest)
        if not path.exists():
            raise NotFound(f"no blob {digest} is stored here; send it first")
        return path

    def has(self, digest: str) -> bool:
        """Whether the blob is here, whole; it is then young again."""
        return _rejuvenate(self._place(digest))

    def size(self, digest: str) -> int:
        """The blob's size in bytes."""
        return self.path(digest).stat().st_size

    def put_bytes(self, content: bytes) -> str:
        """Keep ``content``; returns its digest."""
        digest = digest_of(content)
        place = self._place(digest)
        if not _rejuvenate(place):
            land(place, [(content,)], digest)
        return digest

    async def write(self, body: Body, digest: str) -> int:
        """Keep a blob that arrives; returns its size. Raises `DigestMismatch`."""
        with Landing(self._place(digest)) as landing:
            await body.pour(landing.write, lambda: landing.settle(digest))
        self._note(digest)
        return landing.size

    def adopt(self, path: Path, digest: str) -> None:
        """Keep a file that lies beside the store already, by copying its verified content."""
        place = self._place(digest)
        if _rejuvenate(place) or not path.exists():
            return
        with path.open("rb") as file:
            land(place, iter(lambda: (file.read(PIECE_BYTES),), (b"",)), digest)

    def write_probe(self) -> dict[str, str]:
        """Where the blobs lie, and a new nonce that is written there: who reads it sees this directory.

        Whoever may write there too may lay files beside their places, all of which are made: a directory that
        another user had made would be closed to us. What ``laid`` says is only that it is there.
        """
        for number in range(256):
            make_directory(self._directory / f"{number:02x}")
        nonce = secrets.token_hex(16)
        fresh = self._directory / f".{PROBE}"
        fresh.write_text(nonce)
        fresh.replace(self._directory / PROBE)
        return {"directory": str(self._directory.absolute()), "nonce": nonce, "laid": "yes", "asked": "yes"}

    async def take_laid(self, digest: str, token: str, size: int, own: Own) -> bool:
        """Make a laid file the blob, unless it is here already; see `Laid.settle`."""
        if self.has(digest):
            return True
        settled = await self.laid.settle(digest, token, size, own)
        if settled:
            self._note(digest)
        return settled

    def seen(self, digest: str) -> list[int] | None:
        """What the file of a blob was like when it was verified here, not long ago: see `nearby.look`."""
        return self._verified.get(digest)

    def older_than(self, moment: float) -> list[str]:
        """Blobs that nobody put or asked for since a moment."""
        return [
            f"sha256:{path.name}"
            for path in self._directory.glob("[0-9a-f][0-9a-f]/[0-9a-f]*")
            if _age_mark(path) < moment
        ]

    def delete(self, digest: str, moment: float) -> bool:
        """Delete a blob, unless somebody has put it or asked for it since a moment."""
        place = self._place(digest)
        aside = place.with_name(f".{place.name}.going")
        try:
            place.rename(aside)
        except FileNotFoundError:
            return False
        if _age_mark(aside) >= moment:
            aside.rename(place)
            return False
        aside.unlink()
        return True

    def sweep_partial(self, moment: float) -> None:
        """Delete what writers left unfinished before a moment."""
        for path in self._directory.glob("[0-9a-f][0-9a-f]/.*"):
            if _age_mark(path) < moment:
                path.unlink(missing_ok=True)

    def _note(self, digest: str) -> None:
        self._verified[digest] = list(look(self._place(digest)))
        if len(self._verified) > _NOTED_MAX:
            self._verified.popitem(last=False)

    def _found_place(self, digest: str) -> Path:
        if DIGEST_PATTERN.fullmatch(digest) is None:
            raise Usage(f"{digest[:80]!r} is not a digest; one reads sha256: and 64 hexadecimal digits")
        name = digest.removeprefix("sha256:")
        return self._directory / name[:2] / name


def _rejuvenate(place: Path) -> bool:
    """Whether the file is there; it counts as new from now on."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def _age_mark(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
