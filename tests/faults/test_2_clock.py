"""2.25: the wall clock is set while runs wait and go on, as real processes of server and agent see it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, deployed
from tests.harness.waiting import eventually

HOUR_S = 3600
FLOWS = """
from pathlib import Path
import time
from farhand import flow

@flow(retries=1, retry_delay=1.5)
def flaky(path: str) -> str:
    if not Path(path).exists():
        Path(path).touch()
        raise OSError("the first time")
    return "the second time"

@flow
def lasting(path: str, gate: str) -> str:
    with open(path, "a") as file:
        file.write("begin\\n")
    while not Path(gate).exists():
        time.sleep(0.02)
    return "lasted"
"""


SITE = """
import os, time

def shifted(real=time.time, stamp=os.environ["WALL_CLOCK_FILE"]):
    with open(stamp) as file:
        return real() + float(file.read())

time.time = shifted
"""


class WallClock:
    """By how much the clock of server and agent differs from the machine's."""

    def __init__(self, stamp: Path) -> None:
        self._stamp = stamp
        self.set(0)

    def set(self, offset_s: int) -> None:
        new = self._stamp.with_suffix(".new")
        new.write_text(str(offset_s))
        new.replace(self._stamp)


@pytest.fixture
def wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """A wall clock for every server and agent that the test starts from here on."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("WALL_CLOCK_FILE", str(tmp_path / "stamp"))
    return WallClock(tmp_path / "stamp")


@pytest.mark.fault("2.25")
@pytest.mark.parametrize("offset_s", [-HOUR_S, HOUR_S], ids=["back", "forth"])
def test_a_clock_set_by_an_hour_holds_up_no_retry_and_loses_no_worker(
    wall_clock: WallClock, tmp_path: Path, offset_s: int
) -> None:
    """What runs goes on in its one attempt, and a delay is as long as it was before."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "flows.py").write_text(FLOWS)
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    with deployed(tmp_path, project=project) as running:
        lasting = running.start_run("lasting", path=str(witness), gate=str(gate))
        running.wait_for_run(lasting, "running")
        flaky = running.start_run("flaky", path=str(tmp_path / "failed"))
        eventually(lambda: running.run(flaky)["reason"] == "retrying", what="the retry waits")
        wall_clock.set(offset_s)
        began = time.monotonic()
        later = running.wait_for_run(running.start_run("flaky", path=str(tmp_path / "later")), within_s=20)
        assert running.wait_for_run(flaky, within_s=20)["result"] == "the second time"
        assert later["result"] == "the second time"
        assert abs(later["created_at"] - time.time() - offset_s) < 60  # the server saw it
        eventually(lambda: time.monotonic() - began > FAST.lease_s, what="a lease has passed since")
        gate.touch()
        assert running.wait_for_run(lasting)["result"] == "lasted"
        assert len(running.attempts(lasting)) == 1
        assert witness.read_text() == "begin\n"
