"""How runs behave: silence, retries of what is worth one, hooks, limits at once, engines of one's own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, PROJECT, Deployment, deployed
from tests.harness.receivers import Mail, Web
from tests.harness.waiting import eventually
from tests.harness.witnesses import words


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One server for all that leave it as they found it."""
    with deployed(tmp_path_factory.mktemp("limits")) as running:
        yield running


def hooks_of(deployment: Deployment, run_id: str) -> list[tuple[str, str]]:
    tasks = deployment.items(f"/runs/{run_id}/tasks")
    return [(task["name"], task["state"]) for task in tasks if task["name"].startswith("on_")]


def test_a_silent_run_ends_with_that_reason_and_one_whose_child_talks_does_not(
    deployment: Deployment, tmp_path: Path
) -> None:
    """B107: the child flushes nothing, and each line is there when it is printed."""
    began = time.monotonic()
    run = deployment.wait_for_run(
        deployment.start_run("silent", path=str(tmp_path / "w"), seconds=30.0), "failed"
    )
    assert run["reason"] == "silence"
    assert time.monotonic() - began < 10
    deployment.wait_for_run(deployment.start_run("talking_child"), "completed")


def test_what_is_not_worth_a_retry_is_not_retried(deployment: Deployment, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    run = deployment.wait_for_run(deployment.start_run("picky", path=str(witness)), "failed")
    assert run["reason"] == "exception"
    assert words(witness)["begin"] == 1
    assert len(deployment.attempts(run["id"])) == 1


@pytest.mark.parametrize(
    ("how", "state", "reason", "begun"),
    [
        ("fine", "completed", "completed", 1),
        ("fail", "failed", "exception", 1),
        ("die", "crashed", "engine_died", 2),
    ],
)
def test_each_end_calls_its_hook_once(
    deployment: Deployment, tmp_path: Path, how: str, state: str, reason: str, begun: int
) -> None:
    """FAULTS B010: one crash is retried, the second is the end; one hook call."""
    witness = tmp_path / "witness"
    run_id = deployment.start_run("told", path=str(witness), how=how)
    deployment.wait_for_run(run_id, state)
    eventually(lambda: hooks_of(deployment, run_id) == [(f"on_{state}: tell", "completed")], what="the hook")
    assert words(witness) == {"begin": begun, f"{state}:{reason}": 1}


def test_a_cancelled_run_calls_its_hook_once(deployment: Deployment, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    run_id = deployment.start_run("told", path=str(witness), how="wait", gate=str(tmp_path / "gate"))
    eventually(lambda: words(witness)["begin"], what="the run waits")
    deployment.post(f"/runs/{run_id}/cancel")
    deployment.wait_for_run(run_id, "cancelled", within_s=FAST.grace_s + 5)
    eventually(lambda: words(witness)["cancelled:cancelled"] == 1, what="the hook was called")


def test_runs_of_a_limited_flow_wait_for_each_other_and_say_so(
    deployment: Deployment, tmp_path: Path
) -> None:
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    first, second = [
        deployment.start_run("one_at_a_time", path=str(witness), gate=str(gate)) for _ in range(2)
    ]
    eventually(lambda: words(witness)["begin"] == 1, what="the first has begun")
    message = eventually(lambda: deployment.run(second)["message"], what="the second says why it waits")
    assert message == "waits for another run of one_at_a_time to end; 1 of at most 1 are under way"
    assert deployment.run(second)["state"] == "queued"
    gate.touch()
    for run_id in (first, second):
        deployment.wait_for_run(run_id, "completed")
    assert words(witness)["begin"] == 2


def test_an_isolated_flow_has_an_engine_of_its_own(tmp_path: Path) -> None:
    def pid(flow: str) -> int:
        return deployment.wait_for_run(deployment.start_run(flow), "completed")["result"]

    with deployed(tmp_path) as deployment:
        shared = pid("where")
        assert pid("where") == shared
        alone = {pid("alone"), pid("alone")}
        assert len(alone) == 2
        assert shared not in alone


_NOTIFYING = """
from farhand import flow, notify

tell = [notify(webhook={url!r}), notify(email="me@example.org", smtp={smtp!r})]


@flow(on_failed=tell)
def noticed(day: str) -> None:
    raise ValueError("as asked")
"""


def test_a_failed_run_is_told_by_webhook_and_by_mail(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    web, mail = Web(), Mail()
    (project / "noticed.py").write_text(_NOTIFYING.format(url=web.url, smtp=mail.address))
    try:
        with deployed(tmp_path, project=project) as deployment:
            run_id = deployment.start_run("noticed", day="monday")
            deployment.wait_for_run(run_id, "failed")
            eventually(lambda: web.got and mail.letters, what="both have arrived")
            eventually(
                lambda: [state for _, state in hooks_of(deployment, run_id)] == ["completed"] * 2,
                what="both are recorded",
            )
    finally:
        web.close()
        mail.close()
    [(_, _, body)] = web.got
    assert (body["run"]["id"], body["run"]["params"]) == (run_id, {"day": "monday"})
    assert run_id.encode() in mail.letters[0][2]
