"""``farhand serve`` and what talks to it, as real processes on one home."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.commands import called
from tests.harness.deployment import Deployment, deployed

FLOWS = """
from farhand import flow

@flow
def divide(a: int, b: int = 2) -> float:
    print(f"dividing {a}")
    return a / b
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One server for all of this module; the last test ends it."""
    directory = tmp_path_factory.mktemp("serve")
    project = directory / "project"
    project.mkdir()
    (project / "divide.py").write_text(FLOWS)
    with deployed(directory, project=project) as running:
        yield running


def farhand(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "farhand", *arguments],
        env=deployment.server.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_day_at_the_command_line(deployment: Deployment) -> None:
    started = called(deployment, "runs", "start", "divide", "-p", "a=7", "--follow")
    assert (started.returncode, started.stdout) == (0, "dividing 7\n3.5\n"), started.stderr

    failed = called(deployment, "runs", "start", "divide", "-p", "a=7", "-p", "b=0", "--wait")
    assert failed.returncode == 1
    assert "ZeroDivisionError" in failed.stderr
    assert failed.stdout == ""
    assert "ZeroDivisionError" in called(deployment, "runs", "show", failed.stderr.split()[0]).stdout

    wrong = called(deployment, "runs", "start", "divide", "-p", "a=many")
    assert (wrong.returncode, wrong.stderr) == (2, "farhand: a: must be a whole number\n")

    page = json.loads(called(deployment, "runs", "list", "--flow", "divide", "--json").stdout)
    assert [run["state"] for run in page["items"]] == ["failed", "completed"]
    assert page["items"][1]["result"] == 3.5

    assert "server" in called(deployment, "workers", "list").stdout
    assert called(deployment, "tokens", "create", "server").returncode == 2
    token = called(deployment, "tokens", "create", "gpu1", "--labels", "gpu").stdout.strip()
    refused = subprocess.run(
        [sys.executable, "-m", "farhand", "runs", "list", "--url", deployment.url],
        env=deployment.server.environment | {"FARHAND_TOKEN": token},
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 3
    assert "role worker" in refused.stderr


def test_a_setting_that_cannot_be_is_2(deployment: Deployment, tmp_path: Path) -> None:
    wrong = farhand(deployment, "serve", "--port", "99999", "--home", str(tmp_path / "other"))
    assert wrong.returncode == 2
    assert "port" in wrong.stderr
    taken = farhand(deployment, "serve", "--port", str(deployment.port), "--home", str(tmp_path / "other"))
    assert taken.returncode == 2
    assert "--port" in taken.stderr


def test_the_workers_help_is_the_workers_own(deployment: Deployment) -> None:
    told = farhand(deployment, "worker", "--help")
    assert (told.returncode, "--state-dir" in told.stdout) == (0, True)
    assert farhand(deployment, "worker").returncode == 2


def test_a_second_server_on_a_home_is_3_and_stop_ends_the_first(deployment: Deployment) -> None:
    second = farhand(deployment, "serve", "--port", "0", "--no-open")
    assert second.returncode == 3
    assert str(deployment.server.pid) in second.stderr.splitlines()[-1]

    stopped = farhand(deployment, "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert deployment.server.wait() == 0
    assert farhand(deployment, "runs", "list").returncode == 3
    assert farhand(deployment, "stop").returncode == 3
