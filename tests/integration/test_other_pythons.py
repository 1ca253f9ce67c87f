"""The worker's program as one file, and its engines, on every Python they promise to run on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, deployed
from tests.harness.interpreters import interpreter
from tests.harness.processes import command_of
from tests.harness.witnesses import words

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("pythons")) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def program(deployment: Deployment) -> Path:
    """The file as the server gives it to whoever has a token."""
    response = deployment.client.get("/workers/agent.pyz")
    assert response.status_code == 200
    assert response.headers["etag"].strip('"') == response.headers["farhand-digest"]
    path = deployment.directory / "farhand-worker.pyz"
    path.write_bytes(response.content)
    return path


@pytest.mark.fault("3.53")
@pytest.mark.parametrize("version", VERSIONS)
def test_one_file_makes_any_python_a_worker(
    deployment: Deployment, program: Path, tmp_path: Path, version: str
) -> None:
    name = f"python{version}"
    worker = deployment.worker(name, "demo", python=interpreter(version), program=program)
    mapped = deployment.start_run("mapping", path=str(tmp_path / "witness"), count=4)
    ticking = deployment.start_run("ticking_there", path=str(tmp_path / "ticks"), seconds=0.2)
    assert deployment.wait_for_run(mapped, "completed")["result"] == 14
    assert deployment.wait_for_run(ticking, "completed")["worker"] == name
    (attempt,) = deployment.attempts(ticking)
    assert attempt["python"].startswith(f"{version}.")
    assert sum(words(tmp_path / "witness").values()) == 4
    forked, stem = map(command_of, (worker.engines()[0], worker.stem))
    assert forked == stem, "the engine was not started by itself"
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "attached to" in worker.text()
