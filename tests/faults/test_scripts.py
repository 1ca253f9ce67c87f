"""1.10: scripts and the server share a home and never refuse each other."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.harness.deployment import PROJECT, Deployment, environment
from tests.harness.processes import alive
from tests.harness.waiting import eventually, throughout
from tests.harness.witnesses import words

_SCRIPT = """
import os, sys
from breakable import ticking, three_steps
if "--fork" in sys.argv:
    from farhand import flow
    @flow
    def forking(path: str):
        child = os.fork()
        if child == 0:
            import time
            print("a word of the child")
            time.sleep(600)
        open(path, "w").write(str(child))
        return ticking.__wrapped__(path + ".ticks", 600)
    forking(sys.argv[1])
elif "--long" in sys.argv:
    ticking(sys.argv[1], 600)
else:
    three_steps(sys.argv[1])
"""


class Scripts:
    """Scripts on one home; all are ended by pid."""

    def __init__(self, directory: Path, deployment: Deployment) -> None:
        self._path = directory / "pipeline.py"
        self._path.write_text(_SCRIPT)
        self._environment = environment(deployment.home, deployment.times, PYTHONPATH=str(PROJECT))
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a script."""
        script = subprocess.Popen([sys.executable, str(self._path), *arguments], env=self._environment)
        self._started.append(script)
        return script

    def clear(self) -> None:
        """End every script."""
        for script in self._started:
            script.kill()
            script.wait()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Deployment]:
    """A deployment whose server is not started yet."""
    deployment = Deployment(tmp_path)
    yield deployment
    deployment.clear()


@pytest.fixture
def scripts(tmp_path: Path, home: Deployment) -> Iterator[Scripts]:
    """Scripts on the same home."""
    started = Scripts(tmp_path, home)
    yield started
    started.clear()


def _script_runs(deployment: Deployment) -> list[dict[str, object]]:
    return [run for run in deployment.items("/runs") if run["origin"] == "script"]


@pytest.mark.fault("1.10")
def test_two_scripts_and_a_starting_server_do_not_refuse_each_other(
    home: Deployment, scripts: Scripts, tmp_path: Path
) -> None:
    first, second = scripts.start(str(tmp_path / "a")), scripts.start(str(tmp_path / "b"))
    home.start()
    assert first.wait(20) == second.wait(20) == 0
    runs = eventually(
        lambda: [run for run in _script_runs(home) if run["state"] == "completed"][1:] and _script_runs(home),
        what="both runs are recorded",
    )
    assert [run["result"] for run in runs] == [6, 6]
    for run in runs:
        tasks = home.items(f"/runs/{run['id']}/tasks")
        assert [task["state"] for task in tasks] == ["completed"] * 3
    assert words(tmp_path / "a") == words(tmp_path / "b") == {"step1": 1, "step2": 1, "step3": 1}


@pytest.mark.fault("1.10")
def test_a_script_killed_with_9_is_crashed(home: Deployment, scripts: Scripts, tmp_path: Path) -> None:
    home.start()
    script = scripts.start(str(tmp_path / "w"), "--long")
    eventually(lambda: [r for r in _script_runs(home) if r["state"] == "running"], what="it is recorded")
    script.kill()
    script.wait()
    run = eventually(lambda: [r for r in _script_runs(home) if r["state"] == "crashed"])[0]
    assert "script" in str(run["message"])


@pytest.mark.fault("1.10")
def test_a_script_that_stands_in_a_debugger_is_not_called_dead(
    home: Deployment, scripts: Scripts, tmp_path: Path
) -> None:
    home.start()
    script = scripts.start(str(tmp_path / "w"), "--long")
    eventually(lambda: [r for r in _script_runs(home) if r["state"] == "running"], what="it is recorded")
    script.send_signal(signal.SIGSTOP)
    throughout(lambda: _script_runs(home)[0]["state"] == "running", 3.0, "the paused script is running")


@pytest.mark.fault("1.10")
def test_a_killed_script_is_crashed_although_a_child_it_forked_lives_on(
    home: Deployment, scripts: Scripts, tmp_path: Path
) -> None:
    home.start()
    path = tmp_path / "child"
    script = scripts.start(str(path), "--fork")
    child = int(eventually(lambda: path.exists() and path.read_text(), what="the child is forked"))
    lives = psutil.Process(child)
    try:
        eventually(lambda: [r for r in _script_runs(home) if r["state"] == "running"], what="it is recorded")
        script.kill()
        script.wait()
        run = eventually(lambda: [r for r in _script_runs(home) if r["state"] == "crashed"])[0]
        assert alive(child), "the child did not live on, so this proves nothing"
        assert "a word of the child" not in home.log_lines(str(run["id"]))
    finally:
        lives.kill()
