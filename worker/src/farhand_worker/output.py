"""What reaches an engine's file descriptors 1 and 2: bytes in, lines of text out."""

from __future__ import annotations

import codecs
from typing import List, Optional

from .masking import Masker

LINE_BYTES_MAX = 16 * 1024
"""A longer line is cut here; the rest of it is dropped and the cut is marked."""

CUT = " … (line cut)"


class LineReader:
    """Turns chunks of bytes into lines. Never fails: what is no UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._skipping = False
        self._fed = False
        self.mask: Optional[Masker] = None

    def feed(self, chunk: bytes) -> List[str]:
        """The lines that ``chunk`` completes, without their ends."""
        self._fed = True
        pieces = self._decoder.decode(chunk).split("\n")
        lines: List[str] = []
        for piece in pieces[:-1]:
            self._take(piece, lines)
            if not self._skipping:
                lines.append(self._shown(self._rest.rstrip("\r")))
            self._rest, self._skipping = "", False
        self._take(pieces[-1], lines)
        return lines

    def close(self) -> List[str]:
        """The last line, if it had no end; the reader is then as new."""
        if not self._fed:
            return []
        lines = self.feed(b"")
        self._take(self._decoder.decode(b"", True), lines)
        if self._rest and not self._skipping:
            lines.append(self._shown(self._rest.rstrip("\r")))
        self._decoder.reset()
        self._rest, self._skipping, self._fed = "", False, False
        return lines

    def _take(self, piece: str, lines: List[str]) -> None:
        if self._skipping:
            return
        self._rest += piece
        if len(self._rest) > LINE_BYTES_MAX:
            whole = len(self._rest) - (0 if self.mask is None else self.mask.unfinished(self._rest))
            lines.append(self._shown(self._rest[:whole])[:LINE_BYTES_MAX] + CUT)
            self._rest, self._skipping = "", True

    def _shown(self, line: str) -> str:
        return line if self.mask is None else self.mask(line)
