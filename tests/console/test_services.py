"""A service of a real worker in a real browser: opened from the console, and kept away from it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.deployment import deployed
from tests.harness.kept import Kept

from .conftest import OpenPage


def test_a_page_of_a_service_works_and_reads_nothing_of_the_console(
    tmp_path: Path, open_page: OpenPage
) -> None:
    kept = Kept(tmp_path)
    kept.add("web", program="pages.py", device="near", health="/health")
    with deployed(tmp_path, project=kept.project, parallel=1) as deployment:
        kept.deployment = deployment
        deployment.worker("box", "near", parallel=1)
        kept.becomes("web", "healthy")
        link = deployment.post("/signin-links", {"role": "admin"})["path"]
        page = open_page(f"{deployment.url}/{link}")
        page.goto(f"{deployment.url}/services/web")
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
