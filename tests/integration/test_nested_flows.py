"""Flows called inside of flows on a real server: records of their own, replayed, cancelled, placed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, deployed, environment
from tests.harness.processes import send
from tests.harness.waiting import eventually

PROJECT = """
import os
import time
from pathlib import Path

from farhand import current_run, flow, progress, task


@task
def note(path: str, text: str) -> str:
    with open(path, "a") as file:
        file.write(text + "\\n")
    return text


@flow(run_name="part {number}", on_completed=lambda summary: print("told of", summary["id"]))
def part(path: str, number: int) -> str:
    print("part", number, "in", os.getpid())
    progress(number, 3)
    note(path, f"part {number}")
    while number == 2 and not Path(path + ".go").exists():
        time.sleep(0.02)
    return current_run().id


@flow
def whole(path: str) -> list[str]:
    return [part(path, number) for number in (1, 2, 3)]


@flow(runs_on="worker")
def far(number: int) -> list[str]:
    print("far away")
    return [current_run().id, current_run().flow]


@flow
def near(number: int) -> list[str]:
    return far(str(number))
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("nested")
    project = directory / "project"
    project.mkdir()
    (project / "flows.py").write_text(PROJECT)
    with deployed(directory, project=project) as running:
        yield running


def called(deployment: Deployment, run_id: str) -> dict[str, dict]:
    return {run["name"] or run["flow"]: run for run in deployment.items("/runs", parent=run_id)}


def engine_of(deployment: Deployment, run_id: str) -> int:
    """The process that said it executes the second part."""
    lines = eventually(
        lambda: [line for line in deployment.log_lines(run_id) if line.startswith("part 2 in ")], 20, "part 2"
    )
    return int(lines[-1].split()[-1])


def test_a_called_flow_survives_the_death_of_its_engine_as_the_same_run(
    deployment: Deployment, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    run_id = deployment.start_run("whole", path=str(notes))
    pid = engine_of(deployment, run_id)
    before = called(deployment, run_id)
    assert {name: run["state"] for name, run in before.items()} == {
        "part 1": "completed",
        "part 2": "running",
    }
    assert before["part 2"]["progress"]["done"] == 2
    send(pid, signal.SIGKILL)
    Path(f"{notes}.go").touch()
    run = deployment.wait_for_run(run_id, "completed")
    after = called(deployment, run_id)
    assert run["result"] == [after[f"part {number}"]["id"] for number in (1, 2, 3)]
    assert {name: run["state"] for name, run in after.items()} == dict.fromkeys(after, "completed")
    assert (after["part 1"]["id"], after["part 2"]["id"]) == (before["part 1"]["id"], before["part 2"]["id"])
    assert notes.read_text().splitlines() == ["part 1", "part 2", "part 3"]
    second = after["part 2"]
    assert (second["parent"], second["root"], second["params"]["number"]) == (run_id, run_id, 2)
    assert next(task["name"] for task in deployment.items(f"/runs/{second['id']}/tasks")) == "note"
    assert any(line.startswith("part 2") for line in deployment.log_lines(second["id"]))
    assert not any(line.startswith("part 1") for line in deployment.log_lines(second["id"]))
    told = eventually(
        lambda: [line for line in deployment.log_lines(run_id) if line.startswith("told of")][2:], 20, "hooks"
    )
    assert told
    shown = subprocess.run(
        [sys.executable, "-m", "farhand", "runs", "list", "--parent", run_id],
        env=environment(deployment.home, deployment.times),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert [line.split()[1:3] for line in shown.splitlines()[1:]] == [
        ["part", "3"],
        ["part", "2"],
        ["part", "1"],
    ]


def test_cancelling_a_run_cancels_the_flow_it_is_in(deployment: Deployment, tmp_path: Path) -> None:
    run_id = deployment.start_run("whole", path=str(tmp_path / "notes"))
    engine_of(deployment, run_id)
    inner = called(deployment, run_id)["part 2"]["id"]
    refused = deployment.client.post(f"/runs/{inner}/cancel")
    assert refused.status_code == 409
    assert run_id in refused.json()["detail"]
    deployment.post(f"/runs/{run_id}/cancel")
    deployment.wait_for_run(run_id, "cancelled")
    assert deployment.run(inner)["state"] == "cancelled"


def test_a_flow_that_asks_for_a_machine_is_a_placed_job_with_a_run_of_its_own(deployment: Deployment) -> None:
    deployment.worker("w1")
    run_id = deployment.start_run("near", number=4)
    run = deployment.wait_for_run(run_id, "completed")
    far = called(deployment, run_id)["far"]
    assert run["result"] == [far["id"], "far"] == far["result"]
    assert (far["state"], far["worker"], far["params"]) == ("completed", "w1", {"number": 4})
    assert [attempt["worker"] for attempt in deployment.attempts(far["id"])] == ["w1"]
    assert deployment.log_lines(far["id"]) == ["far away"]
