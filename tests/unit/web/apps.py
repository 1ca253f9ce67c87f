"""One application for many tests: the first request to each costs much, all later ones little."""

from __future__ import annotations

from functools import cache
from typing import Any

from farhand.web.access import Sessions
from farhand.web.app import create_app
from farhand.web.settings import WebSettings

from .fakes import FakeServices

USUAL = WebSettings()


@cache
def _application(settings: WebSettings) -> Any:
    return create_app(None, settings)  # type: ignore[arg-type]


def app_over(services: FakeServices, settings: WebSettings = USUAL) -> Any:
    """The application with these settings, over ``services`` until the next call; nobody is signed in."""
    app = _application(settings)
    app.state.services = services
    app.state.sessions = Sessions(settings, generation=lambda: services.tokens.generation)
    return app
