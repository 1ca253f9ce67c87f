"""A real browser, and servers for it to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.optional import need
from tests.unit.web.fakes import FakeServices, make_run
from tests.unit.web.served import Served, served

NAMES = "--host-resolver-rules=MAP *.example.test 127.0.0.1"
"""Names that lead here, as the name server of an installation has them lead to its server."""

OpenPage = Callable[..., Any]
NOISE = ("net::ERR_", "[object Event]", "status of 422", "Cross-Origin-Opener-Policy header has been ignored")
"""What a browser and htmx say of a stream whose page or server ends (the page says "reconnecting"), of a form
that comes back with an error, and of a console that is reached by a name and without TLS."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, for one module: while playwright runs, no other test can have an event loop."""
    program = need("Chromium")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is absent: no browser is driven")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(program), args=["--no-sandbox", NAMES])
        yield chromium
        chromium.close()


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Served]:
    """A server over fakes with one finished run."""
    services = FakeServices(tmp_path)
    services.runs.items["0run1"] = make_run()
    with served(services) as running:
        yield running


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens pages, each in a browser profile of its own; what the browser complains of fails the test."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def opening(address: str, **profile: Any) -> Any:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | profile)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(10_000)
            page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(address)
            page.wait_for_selector(".link.on")
            return page

        yield opening
    assert [text for text in complaints if not any(noise in text for noise in NOISE)] == []
