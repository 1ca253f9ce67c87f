"""What Slurm's accounting says of a job that its controller has forgotten, and of a cluster by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from farhand.provision.config import Profile, Settings
from farhand.provision.interface import ENDED, RUNNING, Asked, Order, Seen
from farhand.provision.slurm.provisioner import Slurm as Provisioner
from tests.harness.waiting import eventually
from tests.lab.accounting import accounting
from tests.lab.slurm import Slurm, cluster


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """One whose controller forgets what has ended after two seconds."""
    directory = tmp_path_factory.mktemp("slurm")
    with accounting(directory) as made, cluster(directory, accounting=made, kept_s=2) as running:
        yield running


@pytest.fixture
def provisioner(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Provisioner:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return Provisioner(Settings("slurm", "hpc", (Profile("small"),)), tmp_path)


def an_order(name: str, *sbatch: str, prerun: str = "true") -> Order:
    profile = Profile("small", sbatch=("--mem=200M", *sbatch), prerun=(prerun,), worker=("sleep",))
    return Order(name, profile, "https://127.0.0.1:1", "none")


def of(provisioner: Provisioner, asked: Asked) -> Seen | None:
    return asyncio.run(provisioner.status([asked])).get(asked.name)


def test_how_a_job_ended_is_told_after_the_controller_has_forgotten_it(
    slurm: Slurm, provisioner: Provisioner
) -> None:
    id = asyncio.run(provisioner.submit(an_order("hpc-1", prerun="(exit 3)")))
    eventually(lambda: not slurm.ask("scontrol", "show", "job", id), 60, "the controller has forgotten it")
    seen = eventually(lambda: of(provisioner, Asked("hpc-1", id)), what="accounting has it")
    assert seen == Seen(ENDED, "FAILED, exit 1:0", id)


def test_a_job_that_was_sent_to_a_cluster_by_name_is_looked_up_and_cancelled_there(
    slurm: Slurm, provisioner: Provisioner
) -> None:
    id = asyncio.run(provisioner.submit(an_order("hpc-2", "--clusters=lab", prerun="sleep 300")))
    assert id.partition(";")[2] == "lab"
    asked = Asked("hpc-2", id)
    eventually(lambda: of(provisioner, asked) == Seen(RUNNING, "RUNNING", id), what="it runs")
    assert asyncio.run(provisioner.cancel([asked])) == {"hpc-2"}
    seen = eventually(lambda: (s := of(provisioner, asked)) and s.state == ENDED and s, what="it has ended")
    assert seen.reason.startswith("CANCELLED")
