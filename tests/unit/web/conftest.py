"""An application over services that live in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from farhand.web.settings import WebSettings

from .apps import app_over
from .fakes import ADMIN, FakeServices, caller, make_run

NAMED = WebSettings(url_hosts=("flows.example.org",))


@pytest.fixture
def services(tmp_path: Path) -> FakeServices:
    services = FakeServices(tmp_path)
    services.runs.items["0run1"] = make_run()
    return services


@pytest.fixture
def app(services: FakeServices) -> Any:
    return app_over(services, NAMED)


@pytest.fixture
def client(app: Any) -> TestClient:
    """Calls as the admin, from this machine."""
    return caller(app, ADMIN)
