"""The frames that come to an engine, cut from the bytes of its socket as they are read."""

from __future__ import annotations

import os
import struct
from typing import Any, Dict, Optional

from farhand_worker import compact

Header = Dict[str, Any]

LENGTH = struct.Struct(">I")
_READ_BYTES = 64 * 1024


class Inlet:
    """What was read and not yet taken. One thread at a time has to do with it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._bytes = b""

    def read(self) -> None:
        """Read what there is, or wait for it. Raises EOFError at the end, and OSError."""
        more = os.read(self._fd, _READ_BYTES)
        if not more:
            raise EOFError
        self._bytes = self._bytes + more if self._bytes else more

    def frame(self) -> Optional[Header]:
        """The header of the next frame (with ``content`` for its body), or None where that is not whole yet.

        Raises ValueError where there is something else.
        """
        content = self._bytes
        if len(content) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(content)[0]
        if len(content) < end:
            return None
        header: Header = compact.parsed(content[LENGTH.size : end].decode())
        size = header.get("body")
        if type(size) is int:
            if len(content) < end + size:
                return None
            header["content"] = content[end : end + size]
            end += size
        self._bytes = content[end:]
        return header
