"""3.52: everything a worker, a command and a browser do, through a real nginx with TLS under a base path."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from farhand_worker.address import parse
from farhand_worker.joining import accept
from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually
from tests.lab.nginx import Nginx, behind_nginx


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Nginx]]:
    """A server as docs/proxy.md starts it, and the nginx of that page before it."""
    deployment = Deployment(tmp_path_factory.mktemp("behind"))
    with behind_nginx(deployment) as nginx:
        yield deployment, nginx


@pytest.mark.fault("3.52")
def test_a_worker_is_invited_works_and_outlives_a_restart_of_the_proxy(
    behind: tuple[Deployment, Nginx], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B113: every channel trusts what SSL_CERT_FILE names, and nothing is sent to whoever is not trusted."""
    deployment, nginx = behind
    made = deployment.post("/workers/invitations", {"name": "box", "labels": ["demo"]})
    assert made["url"] == "https://localhost/farhand"
    for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    stranger = deployment.worker("stranger", "demo", url=nginx.url, wait=False)
    eventually(lambda: "certificate is not trusted" in stranger.text(), what="it says what is wrong")
    stranger.kill()
    monkeypatch.setenv("SSL_CERT_FILE", str(nginx.certificate))
    bought = accept(parse(nginx.url), made["code"], None, tmp_path / "kept")
    worker = deployment.worker("box", "demo", url=nginx.url, token=bought.token)
    (seen,) = [seen for seen in deployment.items("/workers") if seen["name"] == "box"]
    assert seen["address"] == "127.0.0.1"
    run_id = deployment.start_run("waiting_there", path=str(tmp_path / "w"), gate=str(tmp_path / "gate"))
    deployment.wait_for_run(run_id, "running")
    nginx.stop()
    nginx.start()
    eventually(lambda: worker.text().count("attached to") >= 2, what="it dials again")
    (tmp_path / "gate").write_text("")
    run = deployment.wait_for_run(run_id, "completed")
    assert (run["worker"], len(run["attempts"])) == ("box", 1)
    large = deployment.start_run("bulky", size=3_000_000)
    deployment.wait_for_run(large, "completed")


@pytest.mark.fault("3.52")
def test_the_console_and_its_stream_work_below_the_base_path(behind: tuple[Deployment, Nginx]) -> None:
    """B116: no link and no cookie leads outside of it."""
    deployment, nginx = behind
    path = deployment.post("/signin-links", {"role": "viewer"})["path"]
    trust = ssl.create_default_context(cafile=str(nginx.certificate))
    with httpx2.Client(verify=trust, trust_env=False, follow_redirects=True, timeout=20) as browser:
        page = browser.get(f"{nginx.url}/{path}")
        assert page.status_code == 200
        assert str(page.url).startswith(f"{nginx.url}/")
        (cookie,) = browser.cookies.jar
        assert cookie.secure
        for name in ("", "workers", "flows", "schedules"):
            text = browser.get(f"{nginx.url}/{name}").text
            assert re.findall(r'(?:href|src|action|hx-get|hx-post|sse-connect)="/', text) == []
        for found in re.findall(r'(?:href|src)="\./(static/[^"]+)"', page.text):
            assert browser.get(f"{nginx.url}/{found}").status_code == 200
        with browser.stream("GET", f"{nginx.url}/api/v1/stream") as stream:
            assert next(stream.iter_lines()).startswith(":")
