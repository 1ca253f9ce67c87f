"""The how-to pages: every shell block that is marked as one runs as it is written, against one deployment."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, page
from tests.harness.deployment import Deployment, deployed, environment

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(path.name for path in DOCS.glob("howto-*.md") if _BLOCK.search(path.read_text("utf-8")))

TRAIN = """
from farhand import emit, flow, save_artifact, task

@task
def fit(lr: float) -> float:
    save_artifact(b"weights", name="model.bin")
    emit(loss=lr)
    return lr

@flow
def train(lr: float = 0.01, seed: int = 1) -> float:
    return fit(lr)
"""
PIPELINE = """
from farhand import flow

@flow
def report(city: str = "Seattle") -> str:
    return city
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server with the flows that the pages speak of, and a run of one of them."""
    directory = tmp_path_factory.mktemp("howtos")
    project = directory / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "pipeline.py").write_text(PIPELINE)
    (project / "mill.token").write_text("a.worker.token")
    with deployed(directory, project=project) as deployment:
        yield deployment


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_work_as_written(server: Deployment, name: str, tmp_path: Path) -> None:
    run = server.wait_for_run(server.start_run("train"), "completed")["id"]
    python = f'"{sys.executable}" -m'
    programs = (
        f'farhand() {{ {python} farhand "$@"; }}\nfarhand-worker() {{ {python} farhand_worker "$@"; }}\n'
    )
    for block in _BLOCK.findall(page(name)):
        text = re.sub(r"\bRUN\b", run, block).replace("/backups/", f"{tmp_path}/")
        done = subprocess.run(
            ["bash", "-c", f"{programs}set -e\n{text}"],
            cwd=server.directory / "project",
            env=environment(server.home, server.times, HOME=str(tmp_path)),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, text + done.stdout + done.stderr
