"""The same faults once on the default clockwork, as people run it: seconds, not tenths of them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from farhand_worker.protocol import Times
from tests.harness.deployment import Deployment, deployed
from tests.harness.processes import alive
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually
from tests.harness.witnesses import pids, read, words

pytestmark = pytest.mark.slow

DEFAULTS = Times()


def _begin(deployment: Deployment, witness: Path, seconds: float) -> str:
    run_id = deployment.start_run("ticking_there", path=str(witness), seconds=seconds, every=0.1)
    eventually(lambda: words(witness)["tick3"], what="the run ticks")
    return run_id


@pytest.mark.fault("1.2")
def test_a_run_on_a_worker_rides_a_server_out_that_is_away_for_ten_seconds(tmp_path: Path) -> None:
    with deployed(tmp_path, times=DEFAULTS) as deployment:
        deployment.worker("box", parallel=4)
        witnesses = [tmp_path / f"run{number}" for number in range(4)]
        runs = [_begin(deployment, witness, 16) for witness in witnesses]
        deployment.server.kill()
        time.sleep(10)  # the outage itself
        deployment.restart()
        for run_id, witness in zip(runs, witnesses, strict=True):
            run = deployment.wait_for_run(run_id, "completed")
            assert len(deployment.attempts(run_id)) == words(witness)["begin"] == 1
            assert deployment.log_lines(run_id) == [f"tick {n}" for n in range(1, run["result"] + 1)]


@pytest.mark.fault("1.4")
def test_a_frozen_agents_engine_is_dead_within_the_lease_and_replaced_after_it(tmp_path: Path) -> None:
    with deployed(tmp_path, times=DEFAULTS) as deployment:
        worker = deployment.worker("first")
        witness = tmp_path / "witness"
        run_id = _begin(deployment, witness, 60)
        (engine,) = worker.engines()
        deployment.worker("second")
        worker.send(signal.SIGSTOP)
        frozen_at = time.monotonic()
        eventually(lambda: not alive(engine), DEFAULTS.lease_s + 1, "the engine is dead")
        assert time.monotonic() - frozen_at > DEFAULTS.lease_s - 2 * DEFAULTS.heartbeat_s, "it died too soon"
        eventually(lambda: len(pids(witness)) == 2, DEFAULTS.margin_s + DEFAULTS.heartbeat_s + 2)
        old, new = pids(witness)
        assert max(s.at for s in read(witness) if s.pid == old) < min(
            s.at for s in read(witness) if s.pid == new
        )
        worker.send(signal.SIGCONT)
        deployment.wait_for_worker("first", "online")
        deployment.post(f"/runs/{run_id}/cancel")
        deployment.wait_for_run(run_id, "cancelled")


@pytest.mark.fault("1.6")
def test_the_same_attempt_survives_a_link_that_is_cut_for_half_a_lease(tmp_path: Path) -> None:
    with deployed(tmp_path, times=DEFAULTS) as deployment:
        proxy = Proxy(deployment.port)
        try:
            deployment.worker("box", url=proxy.url)
            witness = tmp_path / "witness"
            run_id = _begin(deployment, witness, 12)
            proxy.cut()
            time.sleep(DEFAULTS.lease_s / 2)  # the cut itself
            proxy.heal()
            run = deployment.wait_for_run(run_id, "completed")
            assert len(deployment.attempts(run_id)) == words(witness)["begin"] == 1
            assert deployment.log_lines(run_id) == [f"tick {n}" for n in range(1, run["result"] + 1)]
        finally:
            proxy.close()
