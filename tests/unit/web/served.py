"""An application over fakes, served by a real HTTP server in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from farhand.web.app import create_app
from farhand.web.settings import WebSettings

from .fakes import FakeServices


@dataclass(frozen=True)
class Served:
    """Where it is, and what is behind it."""

    url: str
    app: Any
    services: FakeServices

    def link(self, role: str = "admin") -> str:
        """An address that signs a browser in."""
        return f"{self.url}/{self.app.state.sessions.link(role)}"


class _Http(uvicorn.Server):
    """uvicorn that says when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def served(services: FakeServices, base_path: str = "") -> Iterator[Served]:
    """Serve on a free port of the loopback until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app: Any = create_app(services, WebSettings(port=port, base_path=base_path))  # type: ignore[arg-type]
    http = _Http(uvicorn.Config(app, log_config=None, lifespan="off", access_log=False))
    thread = threading.Thread(target=http.run, args=([listener],))
    thread.start()
    assert http.ready.wait(10)
    try:
        yield Served(f"http://127.0.0.1:{port}{base_path}", app, services)
    finally:
        http.should_exit = True
        http.force_exit = True
        thread.join(10)
        listener.close()
