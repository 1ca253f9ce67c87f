"""2.31: a secret that user code writes in every way it can is in nothing that is kept or shown."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

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


def received(listener: socket.socket, into: list[bytes]) -> None:
    connection, _ = listener.accept()
    with connection:
        into.append(connection.recv(1000))


@pytest.mark.fault("2.31")
def test_a_secret_is_in_no_log_no_result_and_no_file(deployed_secret: Deployment) -> None:
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
