"""Services of a real worker in a real browser: opened, kept away from the console, and ordered about."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.deployment import Deployment, deployed
from tests.harness.kept import Kept

from .conftest import OpenPage


@pytest.fixture(scope="module")
def taken() -> Iterator[socket.socket]:
    """Somebody else's socket."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, taken: socket.socket) -> Iterator[Kept]:
    """A server and a worker with a service that has pages, and one whose port is held by another."""
    kept = Kept(tmp_path_factory.mktemp("kept"))
    kept.add("web", program="pages.py", device="near", health="/health")
    kept.add("taken", port=taken.getsockname()[1], device="near")
    with deployed(kept.directory, project=kept.project, parallel=1) as deployment:
        kept.deployment = deployment
        deployment.worker("box", "near", parallel=1)
        yield kept


@pytest.fixture
def deployment(kept: Kept) -> Deployment:
    assert kept.deployment is not None
    return kept.deployment


def signed_in(deployment: Deployment, open_page: OpenPage, name: str) -> Any:
    """The page of a service, as an admin sees it."""
    page = open_page(f"{deployment.url}/{deployment.post('/signin-links', {'role': 'admin'})['path']}")
    page.goto(f"{deployment.url}/services/{name}")
    return page


def test_a_page_of_a_service_works_and_reads_nothing_of_the_console(
    kept: Kept, deployment: Deployment, open_page: OpenPage
) -> None:
    kept.becomes("web", "healthy")
    page = signed_in(deployment, open_page, "web")
    page.wait_for_selector(".pill >> text=healthy")
    with page.expect_popup() as opened:
        page.click("#open")
    shown = opened.value
    shown.wait_for_function("document.getElementById('said').textContent")
    part, api, cookie = json.loads(shown.inner_text("#said"))
    assert part == "/echo?of=part"
    assert (api, cookie) == ("refused", "refused")
    assert "/services/web/~" in shown.url
    page.click("#stop")
    page.wait_for_selector(".pill >> text=stopped")
    assert page.locator("#open").count() == 0
    page.click("#start")
    page.wait_for_selector(".pill >> text=healthy", timeout=30_000)


def test_a_service_that_is_down_is_tried_again_by_a_click(
    kept: Kept, deployment: Deployment, taken: socket.socket, open_page: OpenPage
) -> None:
    kept.becomes("taken", "down", "never_healthy")
    page = signed_in(deployment, open_page, "taken")
    page.wait_for_selector(".pill >> text=down")
    assert "3 starts in a row never got healthy" in page.inner_text(".sentence")
    taken.close()
    page.click("#start >> text=Try again")
    page.wait_for_selector(".pill >> text=healthy", timeout=30_000)
    assert kept.show("taken")["starts"] == 0
