"""3.5 to 3.7: the server of a worker at work is killed, for long or twice or together with the worker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, deployed
from tests.harness.shop import Shop
from tests.harness.waiting import eventually
from tests.harness.witnesses import words

UNHURRIED = replace(FAST, lease_s=3.0)
"""A server that starts on a loaded machine listens for a while before it answers: no outage to ride out."""


@pytest.fixture(scope="module")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A worker that dials its server directly, so that a dead server refuses it."""
    with deployed(tmp_path_factory.mktemp("shop"), times=UNHURRIED) as deployment:
        yield Shop(deployment)


@pytest.fixture
def shop(open_shop: Shop) -> Shop:
    """The shop, in order."""
    open_shop.whole()
    return open_shop


@pytest.mark.fault("3.5")
def test_a_server_that_is_away_for_1_10_and_60_s_costs_50_remote_jobs_nothing(
    shop: Shop, tmp_path: Path
) -> None:
    """The times are a tenth of what is named, like all times here."""
    witness, gate, deployment = tmp_path / "witness", tmp_path / "gate", shop.deployment
    runs = [deployment.start_run("waiting_there", path=str(witness), gate=str(gate)) for _ in range(50)]
    eventually(lambda: words(witness)["begin"] == 50, 120, "all of them run")
    for away_s in (0.1, 1, 6):
        deployment.server.kill()
        time.sleep(away_s)
        deployment.restart()
    gate.touch()
    for run in runs:
        deployment.wait_for_run(run, "completed", within_s=60)
        assert len(deployment.attempts(run)) == 1
    assert words(witness) == {"begin": 50, "end": 50}


@pytest.mark.fault("3.6")
def test_server_and_worker_killed_together_go_on_from_the_last_checkpoint(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    shop.deployment.server.kill()
    shop.worker.kill()
    shop.worker.start()
    shop.deployment.restart()
    work.ends(attempts=2)


@pytest.mark.fault("3.7")
def test_a_server_killed_twice_in_a_row_costs_a_remote_run_nothing(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    for _ in range(2):
        shop.deployment.server.kill()
        shop.deployment.restart()
    work.ends(attempts=1)
