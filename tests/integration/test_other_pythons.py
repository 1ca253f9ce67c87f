"""A worker and its engines on the other Pythons they promise to run on, where those are installed."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import websockets

import farhand_worker
from tests.harness.deployment import deployed
from tests.harness.witnesses import words

VERSIONS = ("3.9", "3.10", "3.12", "3.13")


def _interpreter(version: str) -> str:
    """A Python of that version, on the path or kept beside others; skips where there is none."""
    found = [shutil.which(f"python{version}") or "", *glob.glob(_KEPT.format(version=version))]
    for path in sorted(filter(None, found)):
        answer = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if answer.stdout.strip() == version:
            return path
    pytest.skip(f"Python {version} is absent: a worker on it")


_KEPT = os.path.expanduser("~/.pyenv/versions/{version}.*/bin/python3")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_worker_on_another_python_runs_flows_and_placed_calls(tmp_path: Path, version: str) -> None:
    python = _interpreter(version)
    packages = tmp_path / "packages"
    packages.mkdir()
    for package in (websockets, farhand_worker):
        source = Path(str(package.__file__)).parent
        (packages / source.name).symlink_to(source)
    with deployed(tmp_path) as deployment:
        deployment.worker("old", "demo", python=python, packages=packages)
        witness = tmp_path / "witness"
        mapped = deployment.start_run("mapping", path=str(witness), count=4)
        ticking = deployment.start_run("ticking_there", path=str(tmp_path / "ticks"), seconds=0.2)
        assert deployment.wait_for_run(mapped, "completed")["result"] == 14
        assert deployment.wait_for_run(ticking, "completed")["worker"] == "old"
        (attempt,) = deployment.attempts(ticking)
        assert attempt["python"].startswith(f"{version}.")
    assert sum(words(witness).values()) == 4
