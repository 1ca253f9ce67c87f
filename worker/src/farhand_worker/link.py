"""The websocket of a session, with a short way for what it carries most: whole texts, one after another.

A text that comes whole is handed over where it is read, one that comes in pieces where it is parsed, and one
that goes is written at once. Whatever else there is, messages in several frames, bytes, a full buffer, a
connection that closes, takes the library's own way.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Optional, Tuple

from websockets.asyncio.client import ClientConnection
from websockets.frames import Frame, Opcode, apply_mask  # pyright: ignore[reportPrivateImportUsage]
from websockets.protocol import State
from websockets.streams import StreamReader

_FIRST_BYTE = StreamReader.at_eof.__code__
_WHOLE_TEXT = 0x80 | Opcode.TEXT
_MASKED, _TWO_BYTES, _EIGHT_BYTES = 0x80, 126, 127
_DATA = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})


class Link(ClientConnection):
    """Use `listen` or ``recv``: what has come before, or cannot be handed over, is still to be received."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._take: Optional[Callable[[str], None]] = None
        self._to_receive = 0
        self._in_parts = False

    def listen(self, take: Optional[Callable[[str], None]]) -> None:
        """Hand every text over to ``take``, which raises nothing; to nobody any more when that is None."""
        self._take = take

    def received(self) -> None:
        """What ``recv`` has returned is dealt with: what follows may overtake it no more."""
        self._to_receive -= 1

    def data_received(self, data: bytes) -> None:
        """Bytes from the network: whole texts are taken off, the library gets what follows them."""
        rest = data
        while self._take is not None and rest and self._is_between_frames:
            text, end = _text_of(rest)
            if text is None:
                break
            self._take(text)
            rest = rest[end:]
        if rest:
            super().data_received(rest)

    @property
    def _is_between_frames(self) -> bool:
        """Whether the library has nothing of a frame, or of a message, that has begun.

        Its parser then waits for the first byte; where that cannot be seen, it gets all there is.
        """
        if self._to_receive or self._in_parts or self.protocol.reader.buffer:
            return False
        at: Any = self.protocol.parser
        while (inner := getattr(at, "gi_yieldfrom", None)) is not None:
            at = inner
        return getattr(at, "gi_code", None) is _FIRST_BYTE

    def process_event(self, event: Any) -> None:
        """The library's word for: something was parsed."""
        if self.response is None or not isinstance(event, Frame) or event.opcode not in _DATA:
            super().process_event(event)
        elif self._take is None or (text := self._at_once(event)) is None:
            self._in_parts = not event.fin
            self._to_receive += event.fin
            super().process_event(event)
        else:
            self._take(text)

    def _at_once(self, frame: Frame) -> Optional[str]:
        """The text of a frame that may be handed over now."""
        if self._to_receive or self._in_parts or not frame.fin or frame.opcode is not Opcode.TEXT:
            return None
        try:
            return bytes(frame.data).decode()
        except UnicodeDecodeError:
            return None  # the library knows how to end a connection for that

    @property
    def takes_more(self) -> bool:
        """Whether what is said now goes out, and does not wait behind what has not."""
        return self.protocol.state is State.OPEN and not self.paused

    def say(self, text: str) -> bool:
        """Write a text now; false when it has to be sent, because the connection closes."""
        protocol = self.protocol
        if protocol.state is not State.OPEN:
            return False
        if protocol.extensions:
            protocol.send_text(text.encode())
            self.send_data()
        else:
            self.transport.write(_frame_of(text))
        return True


def _text_of(data: bytes) -> Tuple[Optional[str], int]:
    """The text of the frame that some bytes begin with, and where that ends; none if it is no whole text."""
    if len(data) < 2 or data[0] != _WHOLE_TEXT:
        return None, 0
    begin, size = 2, data[1]
    if size == _TWO_BYTES:
        begin, size = 4, int.from_bytes(data[2:4], "big")
    end = begin + size
    if data[1] > _TWO_BYTES or len(data) < end:
        return None, 0
    try:
        return data[begin:end].decode(), end
    except UnicodeDecodeError:
        return None, 0  # the library knows how to end a connection for that


def _frame_of(text: str) -> bytes:
    """A text as one frame of a client."""
    content, mask = text.encode(), os.urandom(4)
    size = len(content)
    if size < _TWO_BYTES:
        head = bytes((_WHOLE_TEXT, _MASKED | size))
    elif size < 1 << 16:
        head = bytes((_WHOLE_TEXT, _MASKED | _TWO_BYTES)) + size.to_bytes(2, "big")
    else:
        head = bytes((_WHOLE_TEXT, _MASKED | _EIGHT_BYTES)) + size.to_bytes(8, "big")
    return b"".join((head, mask, apply_mask(content, mask)))
