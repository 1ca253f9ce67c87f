"""A real HTTP server on a free port, over services that live in memory, and a home that names it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner, Result

from farhand.cli import main
from farhand.web import WebSettings, create_app
from tests.unit.web.fakes import ADMIN, FakeServices, make_run

Call = Callable[..., Result]


class _Http(uvicorn.Server):
    """uvicorn that says when it is ready; in a thread it has no signals to handle."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@pytest.fixture
def services(tmp_path: Path) -> FakeServices:
    services = FakeServices(tmp_path)
    services.runs.items["0run1"] = make_run()
    return services


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and no setting of the environment the tests run in."""
    for name in ("URL", "TOKEN", "TOKEN_FILE", "ADMIN_TOKEN", "ADMIN_TOKEN_FILE"):
        monkeypatch.delenv(f"FARHAND_{name}", raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("FARHAND_HOME", str(home))
    return home


@pytest.fixture
def server(services: FakeServices, home: Path) -> Iterator[str]:
    """The address of a server that runs on the home."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app: Any = create_app(services, WebSettings(port=port))  # type: ignore[arg-type]
    config = uvicorn.Config(app, log_config=None, lifespan="off", access_log=False)
    http = _Http(config)
    thread = threading.Thread(target=http.run, args=([listener],))
    thread.start()
    assert http.ready.wait(10)
    url = f"http://127.0.0.1:{port}"
    (home / "server.json").write_text(json.dumps({"url": url, "pid": 0}))
    (home / "admin-token").write_text(ADMIN)
    yield url
    http.should_exit = True
    http.force_exit = True
    thread.join(10)
    listener.close()


@pytest.fixture
def call() -> Call:
    """The program called with arguments: its output, errors and exit code."""

    def calling(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    return calling
