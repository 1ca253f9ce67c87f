"""Projects and parameters that are not as they should be, on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, deployed, environment
from tests.harness.waiting import eventually

HELD = """
import time
from pathlib import Path
from farhand import flow
from helper import answer

@flow
def held(gate: str, n: int = 1) -> int:
    while not Path(gate).exists():
        time.sleep(0.01)
    return answer() * n

@flow
def free(n: int) -> int:
    return n
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _project(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Deployment]:
    """One server for all that is asked of it in vain; what changes its flows has another."""
    with deployed(tmp_path_factory.mktemp("deployment"), project=project, parallel=1) as deployment:
        yield deployment


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Deployment]:
    """A server whose project, in ``project`` beside it, is the test's to change."""
    project = _project(tmp_path / "project")
    (tmp_path / "deployment").mkdir()
    with deployed(tmp_path / "deployment", project=project, parallel=1) as deployment:
        yield deployment


def _project(root: Path) -> Path:
    root.mkdir(exist_ok=True)
    (root / "held.py").write_text(HELD)
    (root / "helper.py").write_text("def answer():\n    return 42\n")
    return root


def cli(server: Deployment, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "farhand", *words],
        env=environment(server.home, server.times),
        capture_output=True,
        text=True,
        check=False,
    )


def flows(server: Deployment) -> dict[str, bool]:
    return {flow["name"]: flow["present"] for flow in server.items("/flows")}


@pytest.mark.fault("2.19")
def test_a_flow_file_is_broken_or_deleted_while_its_runs_are_queued(
    changing: Deployment, tmp_path: Path
) -> None:
    """B152: each run is of the code it was created with, helper module included, and none is left behind."""
    server, project = changing, tmp_path / "project"
    gate = tmp_path / "gate"
    ids = [server.start_run("held", gate=str(gate)) for _ in range(3)]
    server.wait_for_run(ids[0], "running")

    (project / "helper.py").write_text("def answer():\n    return -1\n")
    (project / "held.py").write_text("from farhand import flow\ndef (")
    eventually(lambda: server.items("/projects")[0]["errors"], 20, "the broken file is named")
    assert server.items("/projects")[0]["errors"][0]["file"] == "held.py"
    assert flows(server) == {"free": True, "held": True}
    ids.append(server.start_run("held", gate=str(gate)))

    (project / "held.py").unlink()
    eventually(lambda: not any(flows(server).values()), 20, "the flows are gone")
    gate.touch()
    results = [server.wait_for_run(run_id, "completed") for run_id in ids]
    assert [run["result"] for run in results] == [42] * 4
    assert len({run["bundle"] for run in results}) == 1


@pytest.mark.fault("2.1")
def test_an_unknown_flow_is_named_with_those_there_are(server: Deployment, project: Path) -> None:
    answer = server.client.post("/flows/nope/runs", json={"params": {}})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "this server has: free, held" in answer.json()["detail"]
    started = cli(server, "runs", "start", "nope")
    assert started.returncode == 2
    assert "'nope'" in started.stderr
    here = cli(server, "run", f"{project / 'held.py'}:nope")
    assert here.returncode == 2
    assert "nope" in here.stderr
    assert "Traceback" not in started.stderr + here.stderr


@pytest.mark.fault("2.2")
@pytest.mark.parametrize(
    ("given", "field"),
    [({"n": "many"}, "n"), ({}, "n"), ({"n": 1, "colour": "red"}, "colour")],
    ids=["wrong", "missing", "extra"],
)
def test_wrong_missing_and_extra_parameters_are_refused_by_name(
    server: Deployment, project: Path, given: dict[str, object], field: str
) -> None:
    answer = server.client.post("/flows/free/runs", json={"params": given})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameters")
    assert field in answer.json()["detail"]
    assert "many" not in answer.json()["detail"]
    assert server.items("/runs") == []
    words = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
    started = cli(server, "runs", "start", "free", *words)
    here = cli(server, "run", f"{project / 'held.py'}:free", *words)
    script = subprocess.run(
        [sys.executable, "-c", f"from held import free\nfree(**{given!r})"],
        env={**os.environ, "FARHAND_HOME": str(server.home)},
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    for refused in (started, here):
        assert refused.returncode == 2, refused
        assert field in refused.stderr
        assert "Traceback" not in refused.stderr
    assert script.returncode == 1
    assert field in script.stderr.splitlines()[-1]


@pytest.mark.fault("2.2")
def test_a_deploy_refuses_schedules_whose_parameters_do_not_fit(server: Deployment, tmp_path: Path) -> None:
    root = tmp_path / "other"
    root.mkdir()
    text = (
        "from farhand import every, flow\n"
        "@flow(schedule=every('1h', params={'n': 'many'}))\n"
        "def other(n: int):\n    pass\n"
    )
    (root / "other.py").write_text(text)
    (root / "farhand.toml").write_text('[project]\nname = "other"\n')
    refused = cli(server, "deploy", str(root))
    assert refused.returncode == 1
    assert "other.py: flow 'other': its schedule cannot be used: n" in refused.stderr
    assert "other" not in flows(server)
    (root / "other.py").write_text(text.replace("'many'", "1"))
    assert cli(server, "deploy", str(root)).returncode == 0
    assert flows(server)["other"]
    run = server.wait_for_run(server.start_run("other", n=1), "completed")
    assert run["project"] == "other"
    (root / "other.py").write_text(text.replace("'many'", "1").replace("def other", "def free"))
    taken = cli(server, "deploy", str(root))
    assert taken.returncode == 3
    assert "projects 'default' and 'other'" in taken.stderr
