"""Retry, why, sweep, compare, export and artifacts, from the command line against a real server."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.harness.commands import called
from tests.harness.deployment import PLAIN, Deployment, deployed

PROJECT = """
from pathlib import Path

from farhand import emit, flow, save_artifact, task


def note(path: str, word: str) -> None:
    with open(path, "a") as file:
        file.write(word + "\\n")


@task
def load(path: str) -> list[int]:
    note(path, "load")
    return [1, 2, 3]


@task
def fit(path: str, numbers: list[int], scale: int) -> int:
    note(path, "fit")
    return sum(numbers) * scale


@task
def judge(path: str, score: int, gate: str) -> int:
    note(path, "judge")
    if not Path(gate).exists():
        raise ValueError("the gate is shut")
    return score


@flow
def train(path: str, gate: str, scale: int = 1) -> int:
    return judge(path, fit(path, load(path), scale), gate)


@flow
def score(lr: float, seed: int = 0) -> dict:
    for epoch in range(3):
        emit(loss=lr / (epoch + 1))
    save_artifact(b"weights", name="model.bin")
    if lr > 5:
        raise ValueError("it diverges")
    return {"accuracy": round(1 - lr, 3), "seed": seed}


@flow(device="gpu")
def elsewhere() -> None:
    pass
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("commands")
    project = directory / "project"
    project.mkdir()
    (project / "flows.py").write_text(PROJECT)
    with deployed(directory, project=project) as running:
        yield running


@pytest.fixture
def call(deployment: Deployment):
    def calling(*words: str, code: int = 0, cwd: Path | None = None) -> str:
        done = called(deployment, *words, cwd=cwd)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return calling


def words(path: Path) -> list[str]:
    return path.read_text().split()


def failed(deployment: Deployment, tmp_path: Path) -> tuple[str, Path, Path]:
    """A run that failed in its last task; the file its tasks write, and what its last one waits for."""
    path, gate = tmp_path / "notes", tmp_path / "gate"
    run_id = deployment.start_run("train", path=str(path), gate=str(gate))
    deployment.wait_for_run(run_id, "failed")
    assert words(path) == ["load", "fit", "judge"]
    return run_id, path, gate


def test_a_retry_runs_only_what_did_not_complete(deployment: Deployment, call, tmp_path: Path) -> None:
    run_id, path, gate = failed(deployment, tmp_path)
    gate.touch()
    again = call("runs", "retry", run_id, "--wait", "--json")
    run = deployment.run(json.loads(again)["id"])
    assert (run["state"], run["result"], run["retry_of"]) == ("completed", 6, run_id)
    assert words(path) == ["load", "fit", "judge", "judge"]
    tasks = deployment.items(f"/runs/{run['id']}/tasks")
    assert [(task["name"], task["seeded"]) for task in tasks] == [
        ("load", True),
        ("fit", True),
        ("judge", False),
    ]


def test_a_retry_from_a_task_runs_it_and_all_after_it(deployment: Deployment, call, tmp_path: Path) -> None:
    """B133: though it had succeeded."""
    run_id, path, gate = failed(deployment, tmp_path)
    gate.touch()
    call("runs", "retry", run_id, "--from", "fit", "--wait")
    assert words(path) == ["load", "fit", "judge", "fit", "judge"]
    call("runs", "retry", run_id, "--from", "start", "--wait")
    assert words(path)[-3:] == ["load", "fit", "judge"]
    call("runs", "retry", run_id, "--from", "nothing", code=2)


def test_a_retry_with_other_parameters_replays_what_they_do_not_touch(
    deployment: Deployment, call, tmp_path: Path
) -> None:
    """B134."""
    run_id, path, gate = failed(deployment, tmp_path)
    gate.touch()
    again = json.loads(call("runs", "retry", run_id, "-p", "scale=10", "--wait", "--json"))
    assert (again["state"], again["result"], again["params"]["scale"]) == ("completed", 60, 10)
    assert words(path) == ["load", "fit", "judge", "fit", "judge"]
    call("runs", "retry", run_id, "-p", "depth=1", code=2)


def test_a_retry_asked_for_twice_is_one_run(deployment: Deployment, call, tmp_path: Path) -> None:
    run_id, _, gate = failed(deployment, tmp_path)
    gate.touch()
    first = call("runs", "retry", run_id, "--idempotency-key", "once")
    assert call("runs", "retry", run_id, "--idempotency-key", "once") == first


def test_a_run_that_has_not_ended_is_not_retried(deployment: Deployment, call) -> None:
    run_id = deployment.start_run("elsewhere")
    call("runs", "retry", run_id, code=3)
    deployment.post(f"/runs/{run_id}/cancel")


def test_why_names_the_workers_and_the_reason_against_each(deployment: Deployment, call) -> None:
    run_id = deployment.start_run("elsewhere")
    answer = json.loads(call("runs", "why", run_id, "--json"))
    assert (answer["state"], answer["code"]) == ("queued", "no_worker")
    assert [(r["worker"], r["code"], r["for_good"]) for r in answer["considered"]] == [
        ("server", "label_missing", True)
    ]
    told = call("runs", "why", run_id)
    assert "no attached worker could ever take it" in told
    assert "label_missing" in told
    deployment.post(f"/runs/{run_id}/cancel")
    assert "cancelled on request" in call("runs", "why", run_id)


def test_why_tells_how_the_attempts_ended(deployment: Deployment, call, tmp_path: Path) -> None:
    run_id, _, _ = failed(deployment, tmp_path)
    answer = json.loads(call("runs", "why", run_id, "--json"))
    assert answer["message"] == "ValueError: the gate is shut"
    assert [(a["outcome"], a["reason"]) for a in answer["attempts"]] == [("failed", "exception")]
    graph = deployment.get(f"/runs/{run_id}/graph")
    assert [(node["name"], node["state"]) for node in graph["nodes"]] == [
        ("load", "completed"),
        ("fit", "completed"),
        ("judge", "failed"),
    ]


def test_a_sweep_runs_every_combination_once(deployment: Deployment, call) -> None:
    plan = json.loads(call("sweep", "score", "-p", "lr=0.1,0.01", "-p", "seed=1..2", "--dry-run", "--json"))
    assert plan == [{"lr": lr, "seed": seed} for lr in (0.1, 0.01) for seed in (1, 2)]
    asked = ("sweep", "score", "-p", "lr=0.1,0.01", "-p", "seed=1..2", "--name", "grid")
    told = call(*asked)
    columns = [
        "run",
        "lr",
        "seed",
        "state",
        "took",
        "accuracy",
        "result",
        "seed",
    ]  # a parameter is called so too
    assert told.splitlines()[0].split() == columns
    assert told.count("completed") == 4
    runs = deployment.items("/runs", sweep="grid")
    assert sorted((run["params"]["lr"], run["params"]["seed"]) for run in runs) == [
        (0.01, 1),
        (0.01, 2),
        (0.1, 1),
        (0.1, 2),
    ]
    call(*asked)
    assert len(deployment.items("/runs", sweep="grid")) == 4


def test_a_sweep_with_a_failed_run_is_1(call) -> None:
    told = call("sweep", "score", "-p", "lr=0.5,9", code=1)
    assert "failed" in told
    assert "it diverges" in told


def test_runs_are_compared_side_by_side(deployment: Deployment, call) -> None:
    ids = [deployment.start_run("score", lr=lr) for lr in (0.25, 0.5)]
    for run_id in ids:
        deployment.wait_for_run(run_id, "completed")
    rows = {line[2:].split("  ")[0]: line for line in call("runs", "compare", *ids).splitlines()}
    assert rows["param lr"].startswith("* ")
    assert rows["result seed"].startswith("  ")
    assert rows["loss last"].split()[-2:] == ["0.0833333", "0.166667"]
    compared = json.loads(call("runs", "compare", *ids, "--json"))
    assert compared[0]["metrics"] == [
        {"name": "loss", "count": 3, "last": 0.25 / 3, "low": 0.25 / 3, "high": 0.25}
    ]


def test_runs_are_exported_as_csv_and_json_lines(deployment: Deployment, call) -> None:
    run_id = deployment.start_run("score", lr=0.125)
    deployment.wait_for_run(run_id, "completed")
    rows = list(
        csv.DictReader(io.StringIO(call("runs", "export", "--csv", "--flow", "score", "--since", "1h")))
    )
    row = next(row for row in rows if row["id"] == run_id)
    assert (row["state"], json.loads(row["params"])) == ("completed", {"lr": 0.125})
    assert json.loads(row["result"])["accuracy"] == 0.875
    assert float(row["duration_s"]) > 0
    lines = call("runs", "export", "--jsonl", "--text", "0.125").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [run_id]
    assert call("runs", "export", "--jsonl", "--state", "scheduled") == ""


def test_a_cursor_that_no_page_gave_is_2(deployment: Deployment, call) -> None:
    refused = deployment.client.get("/runs", params={"cursor": "rubbish"})
    assert (refused.status_code, refused.json()["code"]) == (400, "usage")
    assert refused.headers["content-type"] == "application/problem+json"
    call("runs", "list", "--cursor", "rubbish", code=2)
    call("audit", "list", "--cursor", "rubbish", code=2)


def test_an_artifact_is_listed_and_fetched(deployment: Deployment, call, tmp_path: Path) -> None:
    run_id = deployment.start_run("score", lr=0.5)
    deployment.wait_for_run(run_id, "completed")
    assert [item["name"] for item in json.loads(call("artifacts", "list", run_id, "--json"))] == ["model.bin"]
    assert call("artifacts", "get", run_id, "model.bin", cwd=tmp_path) == "model.bin\n"
    assert (tmp_path / "model.bin").read_bytes() == b"weights"
    assert call("artifacts", "get", run_id, "model.bin", "-o", "-") == "weights"
    call("artifacts", "get", run_id, "none", code=2)
    assert os.listdir(tmp_path) == ["model.bin"]


def test_a_shell_is_told_how_to_complete(call) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_FARHAND_COMPLETE" in call("completion", shell)


def test_figures_are_scraped_with_a_token_only(deployment: Deployment) -> None:
    deployment.wait_for_run(deployment.start_run("score", lr=0.5), "completed")
    assert httpx2.get(f"{deployment.url}/metrics", **PLAIN).status_code == 401
    answer = httpx2.get(f"{deployment.url}/metrics", headers=deployment.client.headers, **PLAIN)
    assert answer.headers["content-type"].startswith("text/plain")
    figures = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert float(figures['farhand_runs_ended_total{state="completed"}']) >= 1
    assert float(figures['farhand_dispatch_seconds_bucket{le="+Inf"}']) >= 1
    assert figures['farhand_workers{state="online"}'] == "1.0"
    assert float(figures["farhand_store_operations_total"]) >= float(figures["farhand_store_commits_total"])
    for name in ("farhand_queue_jobs", 'farhand_runs_open{state="running"}', "farhand_loop_lag_seconds"):
        assert name in figures
