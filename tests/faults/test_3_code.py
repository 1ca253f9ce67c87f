"""Code and machines: what a worker lacks is a reason against it; a checkout runs what it has or nothing."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farhand_worker.protocol import Times
from tests.harness.deployment import Deployment, deployed
from tests.harness.interpreters import interpreter
from tests.harness.waiting import eventually

PIPELINE = """
from farhand import flow, task
import helper

@flow(device="checkout")
def versioned():
    return helper.VERSION

@task(device="plain")
def describe(point):
    return point.x

@flow(runs_on="server")
def points():
    from rare import Point
    return sum(describe.map([Point(n) for n in range(6)]).result())
"""
RARE = "from farhand import flow\nimport rare\n@flow(device='rare')\ndef rare_flow():\n    return rare.NAME\n"
PACKAGE = "NAME = 'rare'\nclass Point:\n    def __init__(self, x):\n        self.x = x\n"


def install(directory: Path) -> None:
    """Put a distribution where an interpreter finds it, as an installer does."""
    (directory / "rare-1.0.dist-info").mkdir(parents=True)
    (directory / "rare.py").write_text(PACKAGE)


def write(root: Path, **files: str) -> None:
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server that has a package which its workers may lack."""
    directory = tmp_path_factory.mktemp("code")
    write(directory / "project", pipeline=PIPELINE, helper="VERSION = 1\n", rare_flow=RARE)
    install(directory / "servers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory / "servers"))
        # Nothing here waits for a lease: the default times keep a busy machine from losing a worker.
        with deployed(directory, project=directory / "project", times=Times()) as deployment:
            yield deployment


@pytest.fixture
def project(deployment: Deployment) -> Path:
    """The directory that the server serves."""
    return deployment.directory / "project"


def worker_with(deployment: Deployment, name: str, *labels: str, has_rare: bool) -> Path:
    """A worker whose packages are those of a directory of its own; returns that."""
    packages = deployment.directory / f"packages-of-{name}"
    packages.mkdir()
    if has_rare:
        install(packages)
    deployment.worker(name, *labels, packages=packages)
    return packages


def reason(deployment: Deployment, run: str) -> dict[str, Any] | None:
    """The one reason for which a run waits, once that is known."""
    considered = [r for r in deployment.get(f"/runs/{run}/why")["considered"] if r["code"] != "label_missing"]
    return considered[0] if considered else None


@pytest.mark.fault("3.35")
@pytest.mark.fault("3.36")
def test_a_worker_that_lacks_a_module_is_passed_over_until_it_is_installed(deployment: Deployment) -> None:
    packages = worker_with(deployment, "bare", "rare", has_rare=False)
    failed = deployment.wait_for_run(deployment.start_run("rare_flow"), "failed")
    assert (failed["reason"], failed["error"]["type"]) == ("import", "ModuleNotFoundError")
    assert "bare cannot import rare_flow" in failed["message"]
    assert failed["started_at"] is None, "no user code has begun"

    worker_with(deployment, "full", "rare", has_rare=True)
    ran = deployment.wait_for_run(deployment.start_run("rare_flow"), "completed")
    assert (ran["result"], ran["worker"], ran["attempt"]) == ("rare", "full", 1)
    deployment.workers["full"].send(signal.SIGTERM)
    deployment.wait_for_worker("full", "offline")

    before = deployment.get("/workers/bare")["environment"]
    install(packages)
    eventually(lambda: deployment.get("/workers/bare")["environment"] != before, what="the change is seen")
    (event, *_) = deployment.items("/events", worker="bare", kind="worker.environment")
    assert event["message"] == "what is installed on bare has changed: rare 1.0 added"
    ran = deployment.wait_for_run(deployment.start_run("rare_flow"), "completed")
    (attempt,) = deployment.attempts(ran["id"])
    shown = deployment.get("/workers/bare")
    assert (attempt["worker"], attempt["environment"]) == ("bare", shown["environment"])
    assert attempt["fingerprint"] == ran["fingerprint"]
    assert shown["environment_at"] is not None


@pytest.mark.fault("3.44")
def test_arguments_that_do_not_load_on_one_worker_go_to_another(deployment: Deployment) -> None:
    worker_with(deployment, "lacking", "plain", has_rare=False)
    lonely = deployment.wait_for_run(deployment.start_run("points"), "failed")
    assert "rare" in lonely["error"]["message"]
    worker_with(deployment, "having", "plain", has_rare=True)
    run = deployment.wait_for_run(deployment.start_run("points"), "completed")
    assert run["result"] == sum(range(6))
    calls = [task for task in deployment.items(f"/runs/{run['id']}/tasks") if task["name"] == "describe"]
    assert {call["worker"] for call in calls} == {"having"}


@pytest.mark.fault("3.37")
@pytest.mark.fault("3.38")
def test_a_checkout_runs_what_it_has_and_nothing_in_the_middle_of_a_pull(
    deployment: Deployment, project: Path, tmp_path: Path
) -> None:
    """B152: a run whose code no worker has says so, with the files that differ, and runs once one has it."""
    checkout = tmp_path / "checkout"
    shutil.copytree(project, checkout, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / ".git").mkdir()
    (checkout / ".git/HEAD").write_text("0123456789abcdef" * 2 + "01234567\n")
    worker = deployment.worker("mine", "checkout", checkout=checkout)
    first = deployment.wait_for_run(deployment.start_run("versioned"), "completed")
    assert first["result"] == 1
    (attempt,) = deployment.attempts(first["id"])
    assert attempt["git"] == "0123456789ab"
    bundles = list((worker.state_dir / "bundles").iterdir())
    assert [path.name for path in bundles] == [first["fingerprint"].partition(":")[2]], "nothing was fetched"

    write(project, helper="VERSION = 2\n", pipeline=PIPELINE + "\n# two\n")
    eventually(lambda: deployment.get("/flows/versioned")["fingerprint"] != first["fingerprint"])
    behind = deployment.start_run("versioned")
    seen = eventually(lambda: (r := reason(deployment, behind)) and r["code"] == "checkout_differs" and r)
    assert "helper.py" in seen["message"]
    assert "pipeline.py" in seen["message"]
    (checkout / "rare_flow.py").unlink()
    eventually(lambda: "CAN RUN NONE" in worker.text(), what="the worker says so loudly")

    write(checkout, helper="VERSION = 2\n")
    eventually(lambda: (r := reason(deployment, behind)) and "helper.py" not in r["message"])
    assert deployment.run(behind)["state"] == "queued", "half of a pull runs nothing"
    write(checkout, pipeline=PIPELINE + "\n# two\n")
    assert deployment.wait_for_run(behind, "completed")["result"] == 2


@pytest.mark.fault("3.43")
def test_code_for_a_newer_python_does_not_run_on_an_older_one(
    deployment: Deployment, project: Path, tmp_path: Path
) -> None:
    newer = "from farhand import flow\n@flow(device='old')\ndef newer(n: int = 1):\n"
    write(project, newer=newer + "    match n:\n        case _: return n\n")
    eventually(lambda: any(flow["name"] == "newer" for flow in deployment.items("/flows")))
    program = tmp_path / "farhand-worker.pyz"
    program.write_bytes(deployment.client.get("/workers/agent.pyz").content)
    deployment.worker("old", "old", python=interpreter("3.9"), program=program)
    failed = deployment.wait_for_run(deployment.start_run("newer"), "failed")
    assert (failed["reason"], failed["error"]["type"]) == ("import", "SyntaxError")
    (project / "farhand.toml").write_text("[project]\nrequires_python = '>=3.10'\n")
    asked = lambda: deployment.get("/flows/newer")["ask"]["requires_python"]  # noqa: E731
    eventually(lambda: asked() == ">=3.10")
    waiting = deployment.start_run("newer")
    seen = eventually(lambda: reason(deployment, waiting))
    assert seen["code"] == "requires_python"
    assert "needs >=3.10" in seen["message"]
