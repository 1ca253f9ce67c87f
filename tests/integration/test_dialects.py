"""A server does the same on either dialect of the store: one pass over what it is for, on each.

No lease ends here, so the clockwork is the default one.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farhand_worker.masking import MASK
from farhand_worker.protocol import Times
from tests.harness.commands import called
from tests.harness.deployment import Deployment, deployed
from tests.harness.waiting import eventually
from tests.harness.witnesses import words
from tests.optional import need

FLOWS = """
import os
import time
from pathlib import Path

from farhand import emit, every, flow, save_artifact, secret, task


def note(path, word):
    with open(path, "a") as file:
        file.write(f"{word} {os.getpid()} {time.time()}\\n")


@task
def step(path: str, number: int) -> int:
    note(path, f"step{number}")
    print(f"step {number}")
    emit(loss=1 / number)
    return number


@flow(retries=1)
def whole(path: str, fails: int = 0) -> dict:
    total = sum(step(path, number) for number in (1, 2, 3))
    note(path, "body")
    if len([line for line in Path(path).read_text().splitlines() if line.startswith("body")]) <= fails:
        raise ValueError("not yet")
    save_artifact(b"weights", name="model.bin")
    return {"total": total}


@flow
def dies_once(path: str, gate: str) -> int:
    value = step(path, 1)
    if not Path(gate).exists():
        Path(gate).touch()
        os.kill(os.getpid(), 9)
    return value + step(path, 2)


@flow
def waits(path: str, gate: str) -> str:
    note(path, "begin")
    while not Path(gate).exists():
        time.sleep(0.02)
    return "through"


@flow(secrets=["db"])
def confides() -> str:
    print("it is", secret("db"))
    return secret("db")[:3]


@flow(schedule=every(1))
def fired() -> None:
    pass


@flow
def score(lr: float) -> float:
    return lr * 2
"""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    if request.param == "postgresql":
        need("PostgreSQL")
    directory = tmp_path_factory.mktemp(request.param)
    project = directory / "project"
    project.mkdir()
    (project / "flows.py").write_text(FLOWS)
    with deployed(directory, project=project, dialect=request.param, times=Times()) as running:
        yield running


@pytest.fixture
def dialect(deployment: Deployment) -> str:
    return "postgresql" if "FARHAND_DATABASE" in deployment.server.environment else "sqlite"


Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(deployment: Deployment) -> Call:
    def calling(*command: str) -> subprocess.CompletedProcess[str]:
        return called(deployment, *command)

    return calling


def test_a_run_is_kept_with_all_it_left_and_a_retry_repeats_no_task(
    deployment: Deployment, tmp_path: Path
) -> None:
    path = tmp_path / "notes"
    run_id = deployment.start_run("whole", path=str(path), fails=1)
    run = deployment.wait_for_run(run_id, "completed")
    seen = deployment.items(f"/runs/{run_id}/attempts")
    assert (run["result"], run["attempt"]) == ({"total": 6}, 2), seen
    assert words(path) == {"step1": 1, "step2": 1, "step3": 1, "body": 2}
    assert deployment.log_lines(run_id).count("step 2") == 1
    assert [task["state"] for task in deployment.items(f"/runs/{run_id}/tasks")] == ["completed"] * 3
    (artifact,) = deployment.items(f"/runs/{run_id}/artifacts")
    content = deployment.client.get(f"/artifacts/{artifact['digest']}").content
    assert (artifact["name"], content) == ("model.bin", b"weights")
    points = deployment.items(f"/runs/{run_id}/metrics")
    assert len(points) == 3


def test_a_killed_engine_is_replaced_from_the_last_checkpoint(deployment: Deployment, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    run_id = deployment.start_run("dies_once", path=str(path), gate=str(tmp_path / "gate"))
    run = deployment.wait_for_run(run_id, "completed")
    assert (run["result"], run["attempt"]) == (3, 2)
    assert words(path) == {"step1": 1, "step2": 1}


def test_a_run_is_cancelled_and_retried_by_a_person(
    deployment: Deployment, call: Call, tmp_path: Path
) -> None:
    path, gate = tmp_path / "notes", tmp_path / "gate"
    run_id = deployment.start_run("waits", path=str(path), gate=str(gate))
    deployment.wait_for_run(run_id, "running")
    assert call("runs", "cancel", run_id).returncode == 0
    deployment.wait_for_run(run_id, "cancelled")
    gate.touch()
    again = call("runs", "retry", run_id, "--wait", "--json")
    assert (again.returncode, json.loads(again.stdout)["retry_of"]) == (0, run_id)


def test_a_run_goes_on_when_the_server_is_killed_and_started_again(
    deployment: Deployment, tmp_path: Path
) -> None:
    path, gate = tmp_path / "notes", tmp_path / "gate"
    run_id = deployment.start_run("waits", path=str(path), gate=str(gate))
    deployment.wait_for_run(run_id, "running")
    deployment.server.kill()
    deployment.restart()
    gate.touch()
    run = deployment.wait_for_run(run_id, "completed")
    assert (run["result"], run["attempt"]) == ("through", 1)
    assert words(path) == {"begin": 1}


def test_a_schedule_fires_each_time_once(deployment: Deployment) -> None:
    (schedule,) = deployment.items("/schedules")
    fires = eventually(
        lambda: found if len(found := deployment.items(f"/schedules/{schedule['id']}/fires")) > 1 else None
    )
    assert len({fire["at"] for fire in fires}) == len(fires)
    runs = {fire["run"] for fire in fires if fire["outcome"] == "started"}
    assert runs <= {run["id"] for run in deployment.items("/runs", flow="fired")}
    deployment.post(f"/schedules/{schedule['id']}/pause")


def test_a_secret_reaches_its_flow_and_nobody_else(deployment: Deployment) -> None:
    deployment.put("/secrets/db", {"value": "hunter22hunter22"})
    run_id = deployment.start_run("confides")
    assert deployment.wait_for_run(run_id, "completed")["result"] == "hun"
    assert f"it is {MASK}" in deployment.log_lines(run_id)


def test_a_sweep_is_listed_together_and_deleted_together(deployment: Deployment, call: Call) -> None:
    asked = ("sweep", "score", "-p", "lr=0.1,0.2,0.3", "--name", "grid")
    assert call(*asked).returncode == 0
    runs = deployment.items("/runs", sweep="grid")
    assert sorted(run["result"] for run in runs) == [0.2, 0.4, 0.6]
    deleted = call("runs", "delete", "--sweep", "grid", "--yes", "--json")
    assert (deleted.returncode, json.loads(deleted.stdout)["deleted"]) == (0, 3)
    assert deployment.items("/runs", sweep="grid") == []


def test_pages_of_runs_go_on_where_the_one_before_ended(deployment: Deployment) -> None:
    runs = [deployment.start_run("score", lr=number) for number in range(5)]
    for run in runs:
        deployment.wait_for_run(run, "completed")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = deployment.get("/runs", flow="score", limit=2, **cursor)
        seen += [run["id"] for run in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == runs[::-1]


def test_a_backup_is_taken_of_sqlite_and_left_to_pg_dump_otherwise(
    deployment: Deployment, call: Call, dialect: str, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    done = call("backup", str(file), "--url", deployment.url)
    if dialect == "sqlite":
        assert (done.returncode, file.stat().st_size > 10_000) == (0, True)
    else:
        assert done.returncode == 2
        assert "back it up with pg_dump, and copy its home too" in done.stderr
        assert not file.exists()


def test_the_doctor_finds_the_store_well(deployment: Deployment, call: Call, dialect: str) -> None:
    report = json.loads(call("doctor", "--json").stdout)
    assert report["store"]["dialect"] == dialect
    assert [finding for finding in report["findings"] if finding["about"] == "store"] == []
