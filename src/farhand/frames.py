"""Websockets of the web server that are read and written without a task in between.

By ASGI a text goes through a queue to a task that is woken a turn of the event loop later, and the connection
is not read meanwhile. An application that has something better to do finds the connection itself among the
extensions of its scope.
"""

from __future__ import annotations

from collections.abc import Callable

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import OPEN

EXTENSION = "farhand.frames"
"""Where the application finds it in its scope."""


class FrameProtocol(WebSocketsSansIOProtocol):
    """uvicorn's websocket; it takes its application's word for what is read at once."""

    _take: Callable[[str], bool] | None = None

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

    def handle_text(self, event: Frame) -> None:
        """A text, or the beginning of one, has arrived."""
        if not (event.fin and self._taken(bytes(event.data))):
            super().handle_text(event)

    def _taken(self, content: bytes) -> bool:
        if self._take is None or self.close_sent or not self.queue.empty():
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
        self.conn.send_text(text.encode())
        self.transport.write(b"".join(self.conn.data_to_send()))
