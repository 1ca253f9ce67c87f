"""A service on a host that takes no connection, used through the server that its worker dials."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from farhand_worker.protocol import Times
from tests.harness.deployment import Deployment
from tests.harness.kept import Kept
from tests.lab.netns import SERVER, WORKER, Network

TIMES = Times().scaled(0.4)
UPLOAD = 5 * 1024 * 1024


@pytest.fixture
def kept(net: Network, tmp_path: Path) -> Iterator[Kept]:
    """The server on its host, where the test is too, and the services on the other."""
    kept = Kept(tmp_path)
    kept.add("web", program="pages.py", device="near", health="/health")
    kept.add("talk", "websockets", program="pages.py", device="near", health=None)
    deployment = kept.deployment = Deployment(tmp_path, project=kept.project, times=TIMES, dialect="sqlite")
    deployment.server.arguments += ["--host", "0.0.0.0", "--public-host", SERVER]
    with net.inside("server"):
        try:
            deployment.start()
            token, url = deployment.token("far", ["near"]), f"http://{SERVER}:{deployment.port}"
            with net.inside("worker"):
                deployment.worker("far", token=token, url=url, options=["--insecure"], wait=False)
            for name in ("web", "talk"):
                kept.becomes(name, "healthy")
            yield kept
        finally:
            deployment.clear()


def test_a_service_on_a_host_that_cannot_be_dialled_is_used_through_the_server(kept: Kept) -> None:
    deployment = kept.deployment
    assert deployment is not None
    for address in (WORKER, "127.0.0.1"):
        with pytest.raises((ConnectionError, TimeoutError)):
            socket.create_connection((address, kept.ports["web"]), timeout=5)
    headers = {"Authorization": deployment.client.headers["Authorization"]}
    with httpx2.Client(base_url=f"{deployment.url}/services/web", headers=headers, timeout=20) as http:
        assert http.get("/there").json()["target"] == "/there"
        sent = os.urandom(UPLOAD)
        assert http.post("/take", content=sent).json() == [UPLOAD, hashlib.sha256(sent).hexdigest()]
        assert len(http.get(f"/bytes?count={UPLOAD}").content) == UPLOAD
    room = deployment.url.replace("http", "ws") + "/services/talk/room"
    with connect(room, additional_headers=headers, subprotocols=[Subprotocol("spoken")], proxy=None) as link:
        assert json.loads(link.recv(timeout=20)) == ["/room", "spoken"]
        link.send("there and back")
        assert link.recv(timeout=20) == "there and back"
