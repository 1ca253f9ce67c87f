"""A real HTTP server on a free port, over services that live in memory, and a home that names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from farhand.cli.program import main
from tests.unit.web.fakes import ADMIN, FakeServices, make_run
from tests.unit.web.served import served

Call = Callable[..., Result]


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
    with served(services) as running:
        (home / "server.json").write_text(json.dumps({"url": running.url, "pid": 0}))
        (home / "admin-token").write_text(ADMIN)
        yield running.url


@pytest.fixture
def call() -> Call:
    """The program called with arguments: its output, errors and exit code."""

    def calling(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    return calling
