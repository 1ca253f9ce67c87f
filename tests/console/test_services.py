"""Services of a real worker in a real browser: opened, kept away from the console, and ordered about."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
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


CONSOLE, SERVICES = "flows.example.test", "apps.example.test"
"""Names of one site for the console and for services, so that a browser sends its cookies along."""

SETTINGS = {"FARHAND_PUBLIC_HOST": CONSOLE, "FARHAND_SERVICES_HOST": SERVICES}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, taken: socket.socket) -> Iterator[Kept]:
    """A server and a worker with services that have pages, and one whose port is held by another."""
    kept = Kept(tmp_path_factory.mktemp("kept"))
    kept.add("talk", "websockets", program="pages.py", device="near", health=None)
    kept.add("taken", port=taken.getsockname()[1], device="near")
    with deployed(kept.directory, project=kept.project, parallel=1, settings=SETTINGS) as deployment:
        kept.deployment = deployment
        deployment.worker("box", "near", parallel=1)
        yield kept


@pytest.fixture
def deployment(kept: Kept) -> Deployment:
    assert kept.deployment is not None
    return kept.deployment


def signed_in(deployment: Deployment, open_page: OpenPage, name: str, host: str = "127.0.0.1") -> Any:
    """The page of a service, as an admin sees it."""
    console = f"http://{host}:{deployment.port}"
    page = open_page(f"{console}/{deployment.post('/signin-links', {'role': 'admin'})['path']}")
    page.goto(f"{console}/services/{name}")
    return page


@pytest.mark.parametrize(
    ("console", "service"), [("127.0.0.1", "talk.localhost"), (CONSOLE, f"talk.{SERVICES}")]
)
def test_a_page_at_a_host_of_its_own_has_all_that_pages_have_and_nothing_of_the_console(
    kept: Kept, deployment: Deployment, open_page: OpenPage, console: str, service: str
) -> None:
    """Storage, cookies, absolute paths and a websocket work; the console is neither read nor changed."""
    kept.becomes("talk", "healthy")
    page = signed_in(deployment, open_page, "talk", console)
    address = f"http://{console}:{deployment.port}"
    with page.expect_popup() as opened:
        page.click("#open")
    assert opened.value.url == f"http://{service}:{deployment.port}/"
    shown = page.context.new_page()
    for count in ("1", "2"):
        shown.goto(f"{address}/services/talk/app#{address}")
        shown.wait_for_function("document.getElementById('said').textContent", timeout=20_000)
        assert shown.url == f"http://{service}:{deployment.port}/app#{address}"
        said = json.loads(shown.inner_text("#said"))
        assert (said["count"], said["cookies"]) == (count, ["mine=script", "own=server"])
        assert json.loads(said["room"]) == ["/room", "spoken"]
        assert [said[what] for what in ("api", "link", "frame")] == ["refused"] * 3
        assert said["order"] in ("opaque", "refused"), "it was sent, and nobody knows what came of it"
    kept.becomes("talk", "healthy")
    refused = [e["outcome"] for e in deployment.items("/audit") if e["action"] == "stop_service"]
    assert "done" not in refused
    page.reload()
    page.wait_for_selector(".pill >> text=healthy")


def test_a_page_without_a_host_of_its_own_works_and_reads_nothing_of_the_console(
    tmp_path: Path, open_page: OpenPage
) -> None:
    kept = Kept(tmp_path)
    kept.add("web", program="pages.py", device="near", health="/health")
    settings = {"FARHAND_SERVICES_HOST": ""}
    with deployed(tmp_path, project=kept.project, parallel=1, settings=settings) as deployment:
        kept.deployment = deployment
        deployment.worker("box", "near", parallel=1)
        _is_kept_apart(kept, deployment, open_page)


def _is_kept_apart(kept: Kept, deployment: Deployment, open_page: OpenPage) -> None:
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
