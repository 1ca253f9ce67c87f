"""A server that stops with hundreds of machines outstanding gives all of them back in time."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from farhand.engine.machines import ProvisionerView
from farhand.provision.config import Profile, Settings
from farhand.provision.desk import Desk
from farhand.provision.interface import Reach
from farhand.provision.slurm.provisioner import Slurm
from farhand.provisioning import Shape
from tests.harness.schedulers import Scheduler

from .conftest import URL, Office

pytestmark = pytest.mark.anyio

MACHINES, UNKNOWN = 300, 60
SHAPE = Shape("many", "gpu", ("gpu",), max_outstanding=MACHINES)


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made = Scheduler(tmp_path / "bin")
    monkeypatch.setenv("PATH", made.path)
    return made


async def test_three_hundred_machines_are_given_back_by_a_few_slow_calls(
    office: Office, scheduler: Scheduler
) -> None:
    """B085: at 0.2 s a call, one call each would take a minute, three times what a stop waits for."""
    await office.open()
    office.machines.offer([ProvisionerView("many", "slurm", "here", (SHAPE,), "cancel", 900, 300)])
    settings = Settings("slurm", "many", (Profile("gpu", labels=("gpu",)),))
    provisioner = Slurm(settings, Path(tempfile.mkdtemp(prefix="h-")))
    desk = Desk(settings, provisioner, office.machines, lambda: Reach(URL))
    jobs: dict[str, list[str]] = {}
    for number in range(MACHINES):
        machine = await office.machines.ask_for(SHAPE, f"many-gpu-{number}", 3600)
        jobs[str(number)] = [machine.name, "PENDING", "Priority"]
        external = str(number) if number >= UNKNOWN else ""
        await office.machines.change(machine, "pending" if external else "asked", external=external, tries=1)
    (scheduler.directory / "jobs").write_text(json.dumps(jobs))
    scheduler.faults(scancel="slow")
    await desk.leave("the server stopped")
    await desk.close()
    assert {job[1] for job in scheduler.jobs().values()} == {"CANCELLED"}
    assert (len(scheduler.calls("scancel")), len(scheduler.calls("squeue"))) == (6, 1)
    assert {machine.state for machine in office.machines.of("many")} == {"leaving"}
