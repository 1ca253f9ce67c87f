"""3.51: a server and a worker on two hosts with a router between them, whose link is cut and healed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from farhand_worker.protocol import Times
from tests.harness.deployment import Deployment
from tests.harness.processes import alive
from tests.harness.waiting import eventually, throughout
from tests.harness.witnesses import words
from tests.lab.netns import SERVER, Network

TIMES = Times().scaled(0.4)
"""Long enough that the kernel's own pauses between retransmissions fit into a lease."""


@pytest.fixture
def server(net: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """A server on its host; the test itself is there, too."""
    monkeypatch.setenv("WITNESS_MARK", str(tmp_path))
    deployment = Deployment(tmp_path, times=TIMES, dialect="sqlite")
    deployment.server.arguments += ["--host", "0.0.0.0", "--public-host", SERVER]
    with net.inside("server"):
        try:
            yield deployment.start()
        finally:
            deployment.clear()


@pytest.mark.fault("3.51")
def test_a_cut_shorter_than_a_lease_goes_unnoticed_and_a_longer_one_costs_an_attempt(
    net: Network, server: Deployment, tmp_path: Path
) -> None:
    token, gate, witness = server.token("far", []), tmp_path / "gate", tmp_path / "witness"
    with net.inside("worker"):
        far = server.worker(
            "far", token=token, url=f"http://{SERVER}:{server.port}", options=["--insecure"], wait=False
        )
    server.wait_for_worker("far", "online")
    run = server.start_run("waiting_there", path=str(witness), gate=str(gate))
    server.wait_for_run(run, "running")
    engines = far.engines()

    net.cut()
    throughout(lambda: all(alive(pid) for pid in engines), TIMES.lease_s / 3, "the engine goes on")
    net.heal()
    server.wait_for_worker("far", "online")
    throughout(lambda: all(alive(pid) for pid in engines), TIMES.lease_s, "the engine goes on after it")
    assert server.run(run)["attempt"] == 1

    net.unplug()
    eventually(lambda: not any(alive(pid) for pid in engines), what="the lease ends the engine")
    server.wait_for_worker("far", "offline")
    server.wait_for_run(run, "queued")
    net.plug()
    server.wait_for_worker("far", "online")
    gate.touch()
    ended = server.wait_for_run(run, "completed")
    assert (ended["result"], ended["worker"], ended["attempt"]) == ("done", "far", 2)
    outcomes = [(attempt["outcome"], attempt["reason"]) for attempt in server.attempts(run)]
    assert outcomes == [("lost", "worker_lost"), ("completed", "completed")]
    assert words(witness) == {"begin": 2, "end": 1}
