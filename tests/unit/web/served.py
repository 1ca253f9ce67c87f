"""An application over fakes, served by a real HTTP server in a thread that goes from test to test."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from farhand.web.settings import WebSettings
from tests.harness.httpd import Http

from .apps import app_over
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


class _Host:
    """A server thread on a free port of the loopback, and the settings of what it serves."""

    def __init__(self, base_path: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.settings = WebSettings(port=self._listener.getsockname()[1], base_path=base_path)
        self.url = f"http://127.0.0.1:{self.settings.port}{base_path}"
        self.taken = False
        app = app_over(FakeServices.__new__(FakeServices), self.settings)
        self._http = Http(uvicorn.Config(app, log_config=None, lifespan="off", access_log=False))
        self._thread = threading.Thread(target=self._http.run, args=([self._listener],), daemon=True)
        self._thread.start()
        assert self._http.ready.wait(10)

    @contextmanager
    def over(self, services: FakeServices) -> Iterator[Served]:
        """Serve what is behind ``services``, and nothing afterwards."""
        self.taken = True
        try:
            yield Served(self.url, app_over(services, self.settings), services)
        finally:
            self.taken = False


_HOSTS: dict[str, list[_Host]] = defaultdict(list)


def served(services: FakeServices, base_path: str = "") -> AbstractContextManager[Served]:
    """Serve until the end of the block, by a server that waits for the next test afterwards."""
    hosts = _HOSTS[base_path]
    free = next((host for host in hosts if not host.taken), None)
    if free is None:
        free = _Host(base_path)
        hosts.append(free)
    return free.over(services)
