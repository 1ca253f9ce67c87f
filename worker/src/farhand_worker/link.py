"""The websocket of a session, with a short way for what it carries most: whole texts, one after another.

A text that comes is handed over where it is parsed, and one that goes is written at once. Whatever else there
is, messages in several frames, bytes, a full buffer, a connection that closes, takes the library's own way.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from websockets.asyncio.client import ClientConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import State

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
        if self.protocol.state is not State.OPEN:
            return False
        self.protocol.send_text(text.encode())
        self.send_data()
        return True
