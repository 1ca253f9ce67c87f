"""Jobs whose code is against the workers that are there, while profiles fit: others are asked, each once."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.model import Job, Machine
from tests.unit.engine.records import FakeLink
from tests.unit.engine.test_importchecks import CODE, ERROR, MISSING, OK, answer, handed
from tests.unit.provision.conftest import GPU, Office

pytestmark = pytest.mark.anyio

PROFILES = [
    {"name": "small", "labels": ["gpu"]},
    {"name": "large", "labels": ["gpu"], "gpus": 4},
    {"name": "other", "labels": ["tpu"]},
]


async def opened(office: Office, **fields: Any) -> Job:
    """Two profiles that fit, one that does not, and a job whose code is checked before it is handed over."""
    await office.open(profiles=PROFILES, **fields)
    return await office.queued(fingerprint=CODE)


def machine_of(office: Office, profile: str) -> Machine:
    (found,) = [machine for machine in office.open_machines if machine.profile == profile]
    return found


async def comes(office: Office, profile: str, *says: Any) -> FakeLink:
    """The machine of a profile attaches, and ends its check so."""
    link = await office.attaches(machine_of(office, profile))
    await office.step()
    await answer(office.world, link, *says)
    await office.step()
    return link


def asked(office: Office) -> list[str]:
    return [order.profile.name for order in office.fake.orders]


async def test_an_attached_worker_that_lacks_a_module_has_a_machine_asked_for(office: Office) -> None:
    job = await opened(office)
    _, box = await office.world.attach(labels=("gpu",))
    await office.step()
    await answer(office.world, box, MISSING)
    await office.step()
    await office.step()
    assert asked(office) == ["small"]
    said = office.message(job)
    assert "box cannot import weather: no module named torch" in said
    assert said.endswith("; requested hpc/small, job 4242, PENDING: Priority")
    link = await comes(office, "small", OK)
    assert handed(link) == [job.id]


async def test_another_profile_is_asked_when_the_first_ones_machine_lacks_the_module(office: Office) -> None:
    job = await opened(office)
    await office.step()
    await comes(office, "small", MISSING)
    assert asked(office) == ["small", "large"]
    assert office.message(job).endswith("; requested hpc/large, job 4243, PENDING: Priority")
    link = await comes(office, "large", OK)
    assert handed(link) == [job.id]


@pytest.mark.fault("4.10")
async def test_once_a_machine_of_every_profile_lacks_the_module_the_job_fails_and_says_so(
    office: Office,
) -> None:
    job = await opened(office, max_outstanding=9)
    await office.step()
    for profile in ("small", "large"):
        await comes(office, profile, MISSING)
    run = await office.world.run_of(job)
    assert (run.state, run.reason, run.error) == ("failed", "import", ERROR)
    assert "cannot import weather: no module named torch" in run.message
    assert run.message.endswith("; machines of hpc/large and hpc/small came and could not take it")
    await office.step()
    assert asked(office) == ["small", "large"], "no machine after machine"


@pytest.mark.fault("4.10")
async def test_a_profile_whose_machine_lacked_the_module_is_not_asked_again_when_that_has_left(
    office: Office,
) -> None:
    job = await opened(office)
    await office.step()
    small = machine_of(office, "small")
    link = await comes(office, "small", MISSING)
    await office.leaves(small, link)
    office.fake.let(small.name, "ended", "COMPLETED")
    for _ in range(3):
        await office.step()
    assert asked(office) == ["small", "large"]
    again = await office.queued(GPU, fingerprint="sha256:" + "8" * 64)
    assert office.machines.may_come(again)
    assert office.machines._shape_for(again).key == ("hpc", "small"), "it is out for that job alone"
    assert office.machines._shape_for(job).key == ("hpc", "large")


async def test_a_job_behind_one_that_failed_so_fails_at_once_while_those_machines_are_there(
    office: Office,
) -> None:
    await opened(office)
    second = await office.queued(fingerprint=CODE)
    await office.step()
    for profile in ("small", "large"):
        await comes(office, profile, MISSING)
    await office.step()
    assert (await office.world.run_of(second)).state == "failed"
    assert asked(office) == ["small", "large"]
