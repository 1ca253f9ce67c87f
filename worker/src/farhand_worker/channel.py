"""The agent's end of the private channel to an engine: a length, a JSON header, and maybe raw bytes.

A frame is four bytes of big-endian length, then a JSON object of that length. When the object's ``body``
is a number, so many raw bytes follow it.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Callable, Dict, List, Tuple, Union

from . import compact
from .protocol import FRAME_BYTES_MAX, dumps

_LENGTH = struct.Struct(">I")
Frame = Tuple[Dict[str, Any], bytes]


class ChannelBroken(Exception):
    """The engine sent something that is no frame."""


def pack(header: Dict[str, Any]) -> bytes:
    """One frame without raw bytes."""
    text = dumps(header).encode()
    return _LENGTH.pack(len(text)) + text


class Unpacker:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> List[Frame]:
        """The frames that ``chunk`` completes. Raises `ChannelBroken`."""
        if not self._bytes:
            frames, taken = _cut(chunk)
            self._bytes += chunk[taken:]
            return frames
        self._bytes += chunk
        frames, taken = _cut(self._bytes)
        del self._bytes[:taken]
        return frames


def _cut(content: Union[bytes, bytearray]) -> Tuple[List[Frame], int]:
    """The whole frames that it begins with, and where they end."""
    frames: List[Frame] = []
    start, size = 0, len(content)
    while size - start >= _LENGTH.size:
        length = _LENGTH.unpack_from(content, start)[0]
        if length > FRAME_BYTES_MAX:
            raise ChannelBroken(f"a frame of {length} bytes")
        end = start + _LENGTH.size + length
        if size < end:
            break
        try:
            header = compact.parsed(content[start + _LENGTH.size : end].decode())
            extra = header.get("body") if isinstance(header.get("body"), int) else 0
        except (ValueError, AttributeError) as error:
            raise ChannelBroken(str(error)) from error
        if size < end + extra:
            break
        start = end + extra
        frames.append((header, bytes(content[end:start])))
    return frames, start


class Channel(asyncio.Protocol):
    """Carries frames; ``on_frame`` gets each header, ``on_lost`` the end of the engine's side."""

    def __init__(self, on_frame: Callable[[Dict[str, Any]], None], on_lost: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._unpacker = Unpacker()
        self._transport: Any = None
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The channel stands."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes from the engine; a broken stream closes the channel."""
        try:
            frames = self._unpacker.feed(data)
        except ChannelBroken:
            self._transport.abort()
            return
        for header, _ in frames:
            self._on_frame(header)

    def connection_lost(self, exc: Exception | None) -> None:
        """The engine has closed its end, or is gone."""
        self._on_lost()

    def send(self, kind: str, /, **fields: Any) -> None:
        """Send one frame; to an engine that is gone it goes nowhere."""
        self.hold(kind, **fields)
        self.flush()

    def hold(self, kind: str, /, **fields: Any) -> None:
        """Send one frame with what follows it, or at `flush`."""
        self._held += pack({"type": kind, **fields})

    def flush(self) -> None:
        """Send what is held: an engine wakes up for each writing."""
        content, self._held = self._held, b""
        if content and self._transport is not None and not self._transport.is_closing():
            self._transport.write(content)

    def close(self) -> None:
        """Close this end."""
        if self._transport is not None:
            self._transport.close()
