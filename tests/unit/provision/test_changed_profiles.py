"""What becomes of machines in a queue when the profile that they were asked for with is changed."""

from __future__ import annotations

import pytest

from tests.unit.provision.conftest import Office

pytestmark = pytest.mark.anyio


async def changed(office: Office, **fields: object) -> None:
    office.configure(**fields)
    await office.provisioning._reread()
    await office.hold_still()


async def test_a_machine_that_waits_with_old_options_is_given_back_and_asked_for_anew(office: Office) -> None:
    """Else a mistake in a profile would hold up everything until the machine is given up."""
    await office.open()
    await office.queued()
    await office.step()
    (old,) = office.open_machines
    await changed(office, profile={"prerun": ["module load cuda/13"]})
    for _ in range(3):
        await office.step()
    assert office.fake.cancelled == [old.name]
    assert (await office.ended()).reason == "its profile has been changed"
    (new,) = office.open_machines
    assert (new.state, office.fake.orders[-1].profile.prerun) == ("pending", ("module load cuda/13",))
    assert office.trouble() == ""


async def test_a_profile_that_is_changed_while_the_server_is_down_is_noticed(office: Office) -> None:
    await office.open()
    await office.queued()
    await office.step()
    (old,) = office.open_machines
    office.begin()
    await office.machines.load()
    await office.open()
    assert [machine.state for machine in office.open_machines] == ["pending"]
    office.begin()
    await office.machines.load()
    await office.open(profile={"prerun": ["module load cuda/13"]})
    for _ in range(3):
        await office.step()
    assert office.fake.cancelled == [old.name]
    assert (await office.ended()).reason == "its profile has been changed"


async def test_one_that_works_already_and_one_of_a_profile_that_is_as_it_was_stay(office: Office) -> None:
    await office.open(max_idle_s=300)
    await office.queued()
    await office.step()
    await changed(office, max_idle_s=60)
    await office.step()
    (machine,) = office.open_machines
    assert machine.state == "pending"
    await office.attaches(machine)
    await office.step()
    await changed(office, profile={"prerun": ["true"]})
    await office.step()
    assert [m.state for m in office.open_machines] == ["attached"]
    assert office.fake.cancelled == []
