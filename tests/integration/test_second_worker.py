"""docs/protocol.md suffices to write a worker: here is one, and it works."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.harness.deployment import Program, deployed
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually
from tests.harness.witnesses import words

SECOND = Path(__file__).with_name("second_worker.py")


def test_a_worker_written_from_the_page_runs_calls_and_flows_and_comes_back(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, contextlib.closing(Proxy(deployment.port)) as proxy:
        (tmp_path / "token").write_text(deployment.token("second", ["demo"]))
        arguments = [str(SECOND), proxy.url, str(tmp_path / "token"), "second"]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FARHAND_")}
        worker = Program("second", arguments, clean, tmp_path / "second.log", tmp_path)
        worker.start()
        try:
            deployment.wait_for_worker("second", "online")
            mapped = deployment.start_run("mapping", path=str(tmp_path / "witness"), count=4)
            assert deployment.wait_for_run(mapped, "completed")["result"] == 14
            assert set(words(tmp_path / "witness").values()) == {1}

            gate = tmp_path / "gate"
            held = deployment.start_run("waiting_there", path=str(tmp_path / "held"), gate=str(gate))
            deployment.wait_for_run(held, "running")
            proxy.reset()
            gate.touch()
            run = deployment.wait_for_run(held, "completed")
            assert (run["worker"], len(deployment.attempts(held))) == ("second", 1)
            worker.send(signal.SIGTERM)
            eventually(lambda: deployment.worker_state("second") != "online", 20, "it is seen to be gone")
        finally:
            worker.clear()
