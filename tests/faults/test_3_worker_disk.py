"""3.48: a worker whose disk takes nothing holds nothing up: it says so, what it was sent goes elsewhere."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, deployed
from tests.harness.disks import small_disk
from tests.harness.waiting import eventually


def _fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _refusals(server: Deployment, run: str) -> dict[str, str]:
    return {each["worker"]: each["code"] for each in server.get(f"/runs/{run}/why")["considered"]}


@pytest.mark.fault("3.48")
def test_what_a_full_worker_cannot_do_is_done_elsewhere_and_it_takes_work_again(tmp_path: Path) -> None:
    """It ends what it has in memory, for there is no room to write that down; nobody waits for the disk."""
    with deployed(tmp_path, parallel=0) as server, small_disk(tmp_path / "kiln" / "state", 12) as disk:
        kiln = server.worker("kiln", "demo")
        try:
            server.wait_for_run(server.start_run("printing_there", lines=1, width=10), "completed")
            _fill(disk / "filled")
            run = server.start_run("printing_there", lines=1000, width=100)
            eventually(lambda: _refusals(server, run).get("kiln") == "trouble", 20, "it takes nothing new")
            known = server.get("/workers/kiln")
            assert "No space left on device" in known["trouble"]
            assert not known["drained"]
            (first,) = server.attempts(run)
            assert "No space left on device" in first["message"], "its end is told though it is not written"
            mill = server.worker("mill", "demo")
            server.wait_for_run(run, "completed")
            assert server.attempts(run)[-1]["worker"] == "mill"
            assert server.worker_state("kiln") == "online"
            mill.send(signal.SIGTERM)
            mill.wait()
            (disk / "filled").unlink()
            eventually(lambda: not server.get("/workers/kiln")["trouble"], 20, "there is room again")
            again = server.start_run("printing_there", lines=1000, width=100)
            server.wait_for_run(again, "completed")
            assert [attempt["worker"] for attempt in server.attempts(again)] == ["kiln"]
        finally:
            kiln.clear()


@pytest.mark.fault("3.48")
def test_a_worker_that_cannot_begin_a_job_gives_it_back_at_once(tmp_path: Path) -> None:
    """It costs the run nothing, and no hand-over has to time out for it."""
    with deployed(tmp_path, parallel=0) as server:
        kiln = server.worker("kiln", "demo")
        try:
            server.wait_for_run(server.start_run("printing_there", lines=1, width=10), "completed")
            spool = tmp_path / "kiln" / "state" / "spool"
            spool.rename(tmp_path / "away")
            spool.touch()
            run = server.start_run("printing_there", lines=1, width=10)
            eventually(lambda: _refusals(server, run).get("kiln") == "trouble", 20, "it takes nothing new")
            (given_back,) = server.attempts(run)
            assert (given_back["outcome"], given_back["started_at"]) == ("stopped", None)
            spool.unlink()
            (tmp_path / "away").rename(spool)
            ended = server.wait_for_run(run, "completed")
            assert (ended["attempt"], ended["message"]) == (2, "")
        finally:
            kiln.clear()
