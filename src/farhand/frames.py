"""Websockets of the web server that are read and written without a task in between.

By ASGI a text goes through a queue to a task that is woken a turn of the event loop later, and the connection
is not read meanwhile. An application that has something better to do finds the connection itself among the
extensions of its scope. Texts that come whole are then taken off, and written, by a short way; all else, a
text in pieces, bytes, a ping, a close, a frame that is too large, is the library's to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode, apply_mask  # pyright: ignore[reportPrivateImportUsage]
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.streams import StreamReader

EXTENSION = "farhand.frames"
"""Where the application finds it in its scope."""

_FIRST_BYTE = StreamReader.at_eof.__code__
_WHOLE_TEXT = 0x80 | Opcode.TEXT
_MASKED, _TWO_BYTES, _EIGHT_BYTES = 0x80, 126, 127
_MASK_BYTES = 4


class FrameProtocol(WebSocketsSansIOProtocol):
    """uvicorn's websocket; it takes its application's word for what is read at once."""

    _take: Callable[[str], bool] | None = None
    _between: bool | None = None
    """Whether the library is between two frames, as far as that was looked for since it read last."""

    def handle_connect(self, event: Request) -> None:
        """A handshake has begun; its application runs from the next turn on."""
        super().handle_connect(event)
        if not self.handshake_complete:
            self.scope["extensions"][EXTENSION] = self  # type: ignore[index]

    def take_by(self, take: Callable[[str], bool]) -> None:
        """Have ``take`` called with every text that arrives while none waits to be received.

        One that it does not take, and all until that one is received, go the ordinary way: then nothing
        more is read before they are received.
        """
        self._take = take

    def data_received(self, data: bytes) -> None:
        """Bytes from the network: texts are taken off, the library gets what is left."""
        at = 0
        while at < len(data) and self._takes and self._is_between_frames:
            text, end = _text_at(data, at, self.config.ws_max_size)
            if text is None or self._take is None or not self._take(text):
                break
            at = end
        if at < len(data):
            self._between = None
            super().data_received(data[at:] if at else data)

    @property
    def _is_between_frames(self) -> bool:
        if self._between is None:
            self._between = _is_between_frames(self.conn)
        return self._between

    @property
    def _takes(self) -> bool:
        """Whether a text that comes now may be taken: nothing is before it, and nothing has been closed."""
        return self._take is not None and not self.close_sent and self.queue.empty()

    def handle_text(self, event: Frame) -> None:
        """The library has read a text, or the beginning of one."""
        if not (event.fin and self._taken(bytes(event.data))):
            super().handle_text(event)

    def _taken(self, content: bytes) -> bool:
        if self._take is None or not self._takes:
            return False
        try:
            text = content.decode()
        except UnicodeDecodeError:  # which closes the connection, in the ordinary way
            return False
        return self._take(text)

    @property
    def ready(self) -> bool:
        """Whether a text can be written now."""
        return (
            self.writable.is_set()
            and self.conn.state is OPEN
            and not (self.disconnected or self.close_sent or self.transport.is_closing())
        )

    def write(self, text: str) -> None:
        """Send a text in a frame of its own; only while it is `ready`."""
        if self.conn.extensions:
            self.conn.send_text(text.encode())
            self.transport.write(b"".join(self.conn.data_to_send()))
        else:
            self.transport.write(_frame_of(text.encode()))


def _is_between_frames(connection: Any) -> bool:
    """Whether the library has nothing of a frame, or of a message, that has begun.

    Its parser then waits for the first byte; where that cannot be seen, the library gets all there is.
    """
    if connection.reader.buffer or connection.cur_size is not None or connection.state is not OPEN:
        return False
    waiting: Any = connection.parser
    while (inner := getattr(waiting, "gi_yieldfrom", None)) is not None:
        waiting = inner
    return getattr(waiting, "gi_code", None) is _FIRST_BYTE


def _text_at(data: bytes, at: int, bytes_max: int) -> tuple[str | None, int]:
    """The text of a client's frame that begins there, and where that ends; None if it is no whole text."""
    if len(data) < at + 2 or data[at] != _WHOLE_TEXT or not data[at + 1] & _MASKED:
        return None, at
    size, begin = data[at + 1] - _MASKED, at + 2
    if size == _TWO_BYTES:
        size, begin = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
    elif size == _EIGHT_BYTES:
        size, begin = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
    content = begin + _MASK_BYTES
    end = content + size
    if size > bytes_max or len(data) < end:
        return None, at
    try:
        return apply_mask(data[content:end], data[begin:content]).decode(), end
    except UnicodeDecodeError:
        return None, at  # the library knows how to end a connection for that


def _frame_of(content: bytes) -> bytes:
    """A text as one frame of a server."""
    size = len(content)
    if size < _TWO_BYTES:
        return bytes((_WHOLE_TEXT, size)) + content
    if size < 1 << 16:
        return bytes((_WHOLE_TEXT, _TWO_BYTES)) + size.to_bytes(2, "big") + content
    return bytes((_WHOLE_TEXT, _EIGHT_BYTES)) + size.to_bytes(8, "big") + content
