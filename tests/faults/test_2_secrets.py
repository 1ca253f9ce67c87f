"""2.31: a secret that user code writes in every way it can is in nothing that is kept or shown."""

from __future__ import annotations

import html
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import httpx2
import pytest

from farhand_worker.masking import MASK, Masker
from tests.harness.deployment import Deployment

VALUE = "hunter22-s3cr3t/with+signs"


@pytest.fixture
def deployed_secret(standing: Deployment) -> Deployment:
    standing.put("/secrets/db", {"value": VALUE})
    standing.put("/variables/region", {"value": "eu-west"})
    return standing


def everything(deployment: Deployment, run_id: str) -> str:
    """All that the API shows of a run, and all that the home and the worker's directory hold of it."""
    shown = [json.dumps(deployment.run(run_id)), *deployment.log_lines(run_id)]
    for part in ("tasks", "events", "metrics", "attempts"):
        shown.append(json.dumps(deployment.items(f"/runs/{run_id}/{part}"), ensure_ascii=False))
    for path in deployment.home.rglob("*"):
        if path.is_file():
            shown.append(path.read_bytes().decode("utf-8", "replace"))
    shown.append(deployment.server.text())
    return "\n".join(shown)


def visited(deployment: Deployment, run_id: str) -> dict[str, str]:
    """What the API answers that needs no more to be known, and pages that links of the console lead to."""
    known = {"id": run_id, "run_id": run_id, "name": "leaking"}
    described = deployment.get("/openapi.json")["paths"]
    paths = [path for path, methods in described.items() if "get" in methods]
    answered = [path for path in paths if known.keys() >= set(re.findall(r"{(\w+)}", path))]
    ahead = {deployment.url + path.format(**known) for path in answered if not path.endswith("/stream")}
    found: dict[str, str] = {}
    with httpx2.Client(follow_redirects=True, trust_env=False) as visitor:
        link = deployment.post("/signin-links", {"role": "admin"})["path"]
        ahead.add(str(visitor.get(f"{deployment.url}/{link}").url))
        while ahead:
            url = ahead.pop()
            answer = visitor.get(url)
            found[url] = answer.text
            if "html" in answer.headers.get("content-type", ""):
                ahead |= set(_links(answer, deployment.url)) - found.keys()
    return found


def _links(page: httpx2.Response, below: str) -> Iterator[str]:
    """Where a page leads, but to what other flows have done."""
    for to in re.findall(r'href="([^"]+)"', page.text):
        url, _ = urldefrag(urljoin(str(page.url), html.unescape(to)))
        if url.startswith(f"{below}/") and ("flow" not in url or "leaking" in url):
            yield url


def received(listener: socket.socket, into: list[bytes]) -> None:
    connection, _ = listener.accept()
    with connection:
        into.append(connection.recv(1000))


@pytest.mark.fault("2.31")
def test_a_secret_is_in_no_log_no_result_no_file_and_on_no_page(deployed_secret: Deployment) -> None:
    """B109: what is masked in one place is masked in all."""
    deployment = deployed_secret
    mask = Masker()
    mask.add(VALUE)
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = threading.Thread(target=received, args=(listener, got))
        reader.start()
        run_id = deployment.start_run("leaking", port=listener.getsockname()[1])
        run = deployment.wait_for_run(run_id, "completed")
        reader.join(10)
    assert got == [VALUE.encode()], "user code itself must have the value"
    assert run["result"] == [MASK, "eu-west"]
    lines = deployment.log_lines(run_id)
    assert f"plain {MASK}" in lines
    assert f"raw {MASK}" in lines
    assert lines.count(MASK) == 2, "split over two writes, here and in a child"
    assert f"logged {MASK}" in lines
    assert not mask.finds(everything(deployment, run_id))
    pages = visited(deployment, run_id)
    assert {f"{deployment.url}/runs/{run_id}", f"{deployment.url}/api/v1/secrets"} <= pages.keys()
    assert [url for url, text in pages.items() if mask.finds(text)] == []


@pytest.mark.fault("2.31")
def test_a_secret_in_an_exception_or_a_parameter_is_masked(
    deployed_secret: Deployment, tmp_path: Path
) -> None:
    deployment = deployed_secret
    mask = Masker()
    mask.add(VALUE)
    run_id = deployment.start_run("leaking_error")
    run = deployment.wait_for_run(run_id, "failed")
    assert run["message"].endswith(f"cannot sign in with {MASK}")
    assert not mask.finds(everything(deployment, run_id))
    given = deployment.start_run("three_steps", path=str(tmp_path / VALUE.replace("/", "")))
    deployment.wait_for_run(given)
    given = deployment.start_run("waiting_there", path=VALUE, gate=VALUE)
    assert deployment.run(given)["params"] == {"path": MASK, "gate": MASK}


@pytest.mark.fault("2.31")
def test_a_secret_is_given_to_nobody_who_does_not_declare_it(deployed_secret: Deployment) -> None:
    run = deployed_secret.wait_for_run(deployed_secret.start_run("undeclared"), "failed")
    assert "does not declare the secret 'db'" in run["message"]
