"""3.19, 3.23, 3.24: a machine that was booted again, a server that was restored, a side that is too new."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farhand.store.leases import RESERVED
from tests.harness.deployment import FAST, Deployment, deployed
from tests.harness.processes import alive
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually
from tests.harness.witnesses import words

FOR_EVER = replace(FAST, lease_s=3600.0, outage_s=3600.0, handoff_s=5.0)
"""Whoever waited here for a lease to run out would wait for longer than any test; and no hand-off is given
up on a loaded machine, which takes another number."""

PRETENDING = """
import sys
import farhand_worker.attendance as attendance
{change}
from farhand_worker.__main__ import program
sys.exit(program())
"""
"""The worker's program, with one fact of it changed."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One server for all of them; each has a worker of another name."""
    with deployed(tmp_path_factory.mktemp("others"), times=FOR_EVER) as running:
        yield running


def pretending(directory: Path, change: str) -> Path:
    """A worker's program in which ``change`` was made."""
    path = directory / "pretending.py"
    path.write_text(PRETENDING.format(change=change))
    return path


@pytest.mark.fault("3.19")
def test_a_machine_that_was_booted_again_has_its_name_at_once(shared: Deployment, tmp_path: Path) -> None:
    """Its leases run for an hour, nobody has told the server of the end, and nothing was left to sweep."""
    token, gate = shared.token("rebooted", []), tmp_path / "gate"
    with contextlib.closing(Proxy(shared.port)) as proxy:
        worker = shared.worker("rebooted", token=token, url=proxy.url)
        run = shared.start_run("waiting_there", path=str(tmp_path / "witness"), gate=str(gate))
        shared.wait_for_run(run, "running")
        proxy.cut()
        worker.clear()
        (shared.directory / "rebooted").rename(shared.directory / "before the boot")
        program = pretending(tmp_path, "attendance.boot_id = lambda: 'another boot'")
        booted = shared.worker("rebooted", token=token, program=program, wait=False)
        gate.touch()
        ended = shared.wait_for_run(run, "completed")
        assert "waits until the leases" not in booted.text()
    first, second = shared.attempts(run)
    assert (ended["worker"], second["worker"]) == ("rebooted", "rebooted")
    assert (first["outcome"], first["reason"]) == ("lost", "worker_lost")
    assert words(tmp_path / "witness") == {"begin": 2, "end": 1}
    booted.clear()


@pytest.mark.fault("3.24")
@pytest.mark.parametrize(
    ("spoken", "sentence"),
    [
        ((8, 9), "this worker speaks protocol 8, the server 1 or older; upgrade the server first"),
        ((0, 0), "this worker speaks protocol 0, the server 1 or newer; upgrade farhand-worker there"),
    ],
)
def test_a_side_that_is_too_new_is_named_in_one_sentence(
    shared: Deployment, tmp_path: Path, spoken: tuple[int, int], sentence: str
) -> None:
    """B151: nothing is found out later, by something that does not work."""
    name = f"speaks-{spoken[0]}"
    program = pretending(tmp_path, f"attendance.SUPPORTED = {spoken}")
    worker = shared.worker(name, program=program, wait=False)
    assert worker.wait() == 3
    assert worker.text().count(sentence) == 1
    assert worker.text().count("refused") == 1
    assert shared.worker_state(name) == ""
    (event,) = eventually(lambda: shared.items("/events", worker=name), what="the refusal is told")
    assert event["kind"] == "worker.refused"
    assert sentence in event["message"]


@pytest.mark.fault("3.23")
def test_a_restored_server_stops_the_engine_of_a_lease_it_never_gave(tmp_path: Path) -> None:
    """The backup has the run in its queue; what began it since, and by how high a number, it cannot know."""
    with deployed(tmp_path, times=FOR_EVER) as server:
        gate, witness, backup = tmp_path / "gate", tmp_path / "witness", tmp_path / "backup.tar"
        for _ in range(3):
            server.wait_for_run(server.start_run("where"), "completed")
        run = server.start_run("waiting_there", path=str(witness), gate=str(gate))
        token = server.token("box", [])
        farhand(server, "backup", str(backup))
        for other in [server.start_run("where") for _ in range(RESERVED)]:
            server.wait_for_run(other, "completed")
        worker = server.worker("box", token=token)
        server.wait_for_run(run, "running")
        (before,) = server.attempts(run)
        engines = worker.engines()

        server.server.send(signal.SIGTERM)
        server.server.wait()
        server.home.rename(tmp_path / "home before")
        farhand(server, "restore", str(backup))
        server.restart()
        eventually(lambda: not any(alive(pid) for pid in engines), what="the engine is stopped")
        gate.touch()
        server.wait_for_run(run, "completed")
        (after,) = server.attempts(run)
        assert after["lease"] < before["lease"], "the numbers of the restored store begin anew"
        assert words(witness) == {"begin": 2, "end": 1}
        assert worker.text().count("attached to") == 2


def farhand(server: Deployment, *arguments: str) -> None:
    """A command on the server's own machine."""
    command = [sys.executable, "-m", "farhand", *arguments, "--home", str(server.home)]
    subprocess.run(command, env=server.server.environment, check=True, capture_output=True, timeout=60)
