"""A project from its first day, each command as a user calls it, and completion of names by a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, deployed, environment
from tests.harness.waiting import eventually

Call = Callable[..., str]
SCHEDULED = '@flow(schedule=cron("0 6 * * *", tz="Europe/Berlin"))'


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("first-day")


@pytest.fixture(scope="module")
def call(directory: Path) -> Call:
    """The program as a process of its own; returns what it says on stdout."""

    def calling(*words: str, code: int = 0, said: str = "", **more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "farhand", *words],
            env=environment(directory / "home", Deployment(directory).times, **more),
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert said in done.stderr
        return done.stdout

    return calling


@pytest.fixture(scope="module")
def project(directory: Path, call: Call) -> Path:
    told = call("init", "My Greetings")
    assert [line.split()[1] for line in told.splitlines()[1:]] == ["My", "check", "run", "serve"]
    return directory / "My Greetings"


@pytest.fixture(scope="module")
def deployment(directory: Path, project: Path) -> Iterator[Deployment]:
    """A server on the project, whose flow now has a schedule."""
    flow = project / "greeting.py"
    text = flow.read_text().replace("from farhand import flow", "from farhand import cron, flow")
    flow.write_text(text.replace("@flow", SCHEDULED))
    with deployed(directory, project=project) as running:
        eventually(lambda: running.items("/schedules"), what="the schedule")
        yield running


def test_a_new_project_passes_its_own_test(project: Path) -> None:
    assert 'name = "my-greetings"' in (project / "farhand.toml").read_text()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"FARHAND_RECORD": "0"}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=60)
    assert "2 passed" in done.stdout, done.stdout


def test_init_touches_nothing_that_is_there(call: Call, project: Path) -> None:
    before = {path: path.read_bytes() for path in project.iterdir() if path.is_file()}
    assert call("init", str(project), code=3, said="nothing was written") == ""
    assert {path: path.read_bytes() for path in before} == before
    assert call("init", "other", "--name", "No Name", code=2, said="--name 'No Name'") == ""


def test_check_says_what_a_server_would_offer(call: Call, project: Path) -> None:
    told = json.loads(call("check", str(project), "--json"))
    assert (told["project"], [flow["name"] for flow in told["flows"]]) == ("my-greetings", ["greeting"])
    assert told["errors"] == []


def test_check_ends_with_1_and_names_what_is_wrong(call: Call, directory: Path) -> None:
    (directory / "broken").mkdir()
    (directory / "broken" / "flows.py").write_text("from farhand import flow\nimport nothing_such\n")
    call("check", "broken", code=1, said="flows.py: ModuleNotFoundError")
    call("check", "nowhere", code=2, said="does not exist")


def test_a_schedule_is_listed_paused_and_resumed(call: Call, deployment: Deployment) -> None:
    (schedule,) = json.loads(call("schedules", "list", "--json"))
    assert (schedule["flow"], schedule["state"], len(schedule["next"]) > 0) == ("greeting", "active", True)
    assert "0 6 * * * in Europe/Berlin" in call("schedules", "list")
    short = schedule["id"][:10]
    assert call("schedules", "pause", short) == f"{schedule['id']} is paused\n"
    assert call("schedules", "resume", short).startswith(f"{schedule['id']} is active, next ")
    call("schedules", "pause", "nothing", code=2, said="no schedule")


def test_a_shell_completes_the_names_that_the_server_knows(call: Call, deployment: Deployment) -> None:
    def complete(words: str) -> list[str]:
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        found = call(_FARHAND_COMPLETE="bash_complete", **asked).split()
        return [line.partition(",")[2] for line in found]

    run = deployment.start_run("greeting")
    assert complete("farhand runs start gre") == ["greeting"]
    assert complete(f"farhand runs show {run[:6]}") == [run]
    assert complete("farhand runs show nothing") == []
    assert complete("farhand runs show --home /nowhere x") == []
