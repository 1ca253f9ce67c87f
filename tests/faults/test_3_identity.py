"""3.18 and 3.20 to 3.22: who may have a worker's name, and for how long, with real processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.harness.deployment import Deployment, deployed
from tests.harness.processes import alive
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One server for all of them; each has a worker of another name."""
    with deployed(tmp_path_factory.mktemp("identity")) as running:
        yield running


def events(shared: Deployment, worker: str) -> list[str]:
    """The kinds of what happened to a worker, the oldest first."""
    found = shared.items("/events", worker=worker, kind="worker.")
    return [event["kind"].removeprefix("worker.") for event in reversed(found)]


@pytest.mark.fault("3.18")
def test_a_second_agent_with_the_same_token_is_refused_while_the_first_goes_on(shared: Deployment) -> None:
    token = shared.token("twin", [])
    first = shared.worker("twin", token=token)
    second = shared.worker("other-directory", token=token, wait=False)
    assert second.wait() == 3
    assert second.text().count("another instance of twin is attached and alive") == 1
    assert shared.worker_state("twin") == "online"
    assert first.process is not None
    assert first.process.poll() is None
    assert events(shared, "twin") == ["attached", "refused"]
    first.send(signal.SIGTERM)
    assert first.wait() == 0


@pytest.mark.fault("3.21")
def test_a_worker_revoked_in_mid_run_is_offline_at_once_and_its_run_goes_elsewhere(
    shared: Deployment, tmp_path: Path
) -> None:
    leaver = shared.worker("leaver", "gpu")
    run_id = shared.start_run("waiting_there", path=str(tmp_path / "w"), gate=str(tmp_path / "gate"))
    shared.wait_for_run(run_id, "running")
    engines = leaver.engines()
    (jti,) = [token["jti"] for token in shared.items("/workers/tokens") if token["name"] == "leaver"]
    shared.post(f"/workers/tokens/{jti}/revoke")
    assert shared.worker_state("leaver") == "offline"
    assert leaver.wait() == 3
    assert "revoked" in leaver.text()
    eventually(lambda: not any(alive(pid) for pid in engines), what="its engines have ended")
    shared.worker("heir", "gpu")
    (tmp_path / "gate").write_text("")
    shared.wait_for_run(run_id, "completed")
    first, *later = (attempt["worker"] for attempt in shared.attempts(run_id))
    assert first == "leaver"
    assert "leaver" not in later
    assert events(shared, "leaver").count("offline") == 1


@pytest.mark.fault("3.22")
def test_a_token_of_another_server_is_refused_for_good(shared: Deployment) -> None:
    claims = {"jti": "0123", "sub": "stranger", "role": "worker", "labels": [], "exp": time.time() + 3600}
    foreign = jwt.encode(claims, Ed25519PrivateKey.generate(), algorithm="EdDSA")
    stranger = shared.worker("stranger", token=foreign, wait=False)
    assert stranger.wait() == 3
    assert stranger.text().count("not one of this server's") == 1
    assert foreign not in stranger.text() + shared.server.text()
    assert shared.worker_state("stranger") == ""


@pytest.mark.fault("3.20")
def test_a_live_instance_outlives_its_token_and_a_new_one_does_not(
    shared: Deployment, tmp_path: Path
) -> None:
    token = shared.token("brief", ["brief"], expires_s=8)
    proxy = Proxy(shared.port)
    try:
        worker = shared.worker("brief", token=token, url=proxy.url)
        eventually(lambda: _expires_at(token) < time.time(), what="the token has expired")
        proxy.reset()
        run_id = shared.start_run("where")
        shared.wait_for_run(run_id, "completed")
        eventually(
            lambda: worker.text().count("attached to") >= 2 and shared.worker_state("brief") == "online",
            what="the instance is let in again",
        )
        worker.kill()
        worker.start()
        assert worker.wait() == 3
        assert "the token has expired" in worker.text()
        eventually(lambda: "refused" in events(shared, "brief"), what="the refusal is told")
    finally:
        proxy.close()


def _expires_at(token: str) -> float:
    return jwt.decode(token, options={"verify_signature": False, "verify_exp": False})["exp"]
