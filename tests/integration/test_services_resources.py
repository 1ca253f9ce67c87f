"""What a service is given, a card and weights, and that its card is free once it has stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.harness.deployment import Deployment, deployed
from tests.harness.kept import Kept
from tests.harness.processes import alive
from tests.harness.waiting import eventually

CARD = "GPU-of-the-test"
WEIGHTS = b"weights \x00\xff of a test"
DIGEST = f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"

_FLOWS = f"""
import os

from farhand import flow, save_artifact


@flow(runs_on="server")
def save() -> str:
    return save_artifact({WEIGHTS!r}, name="weights").digest


@flow(runs_on="box", gpus=1)
def on_the_card() -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kept, Deployment]]:
    """A server, a worker with one card, and weights that a run saved before there was a service."""
    kept = Kept(tmp_path_factory.mktemp("given"))
    kept.write()
    (kept.project / "others.py").write_text(_FLOWS)
    with deployed(kept.directory, project=kept.project, parallel=1) as deployment:
        kept.deployment = deployment
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_GPUS_ON_NODE", "1")
            patch.setenv("CUDA_VISIBLE_DEVICES", CARD)
            deployment.worker("box")
        saved = deployment.wait_for_run(deployment.start_run("save"), "completed")
        assert saved["result"] == DIGEST
        kept.add("model", "{weights}", gpus=1, weights=DIGEST, env={"WEIGHTS_AT": "{weights}"})
        eventually(lambda: deployment.items("/services"), 30, "the service is known")
        yield kept, deployment


def test_weights_are_there_before_the_start_in_words_and_in_variables(given: tuple[Kept, Deployment]) -> None:
    kept, _ = given
    told = psutil.Process(kept.pid("model"))
    path = told.environ()["WEIGHTS_AT"]
    assert Path(path).read_bytes() == WEIGHTS
    assert path in told.cmdline()


def test_a_stopped_service_leaves_its_card_to_the_job_that_waits_for_it(
    given: tuple[Kept, Deployment],
) -> None:
    kept, deployment = given
    pid = kept.pid("model")
    assert psutil.Process(pid).environ()["CUDA_VISIBLE_DEVICES"] == CARD
    run = deployment.start_run("on_the_card")
    said = "box has 0 of 1 gpus free (the service model keeps 1 until it is stopped)"
    eventually(lambda: said in deployment.run(run)["message"], 20, "it says what it waits for")
    assert said in deployment.get(f"/runs/{run}/why")["message"]
    deployment.post("/services/model/stop")
    assert deployment.wait_for_run(run, "completed")["result"] == CARD
    assert not alive(pid)
    assert not kept.listens("model")
