"""What becomes of machines when their server stops, is killed, and starts again."""

from __future__ import annotations

import pytest

from tests.unit.provision.conftest import Office

pytestmark = pytest.mark.anyio


@pytest.mark.fault("4.13")
async def test_a_server_that_was_killed_goes_on_with_what_it_asked_for(office: Office) -> None:
    await office.open()
    await office.queued()
    await office.step()
    (machine,) = office.open_machines
    await office.hold_still()
    office.begin()
    await office.open()
    await office.step()
    assert [m.name for m in office.open_machines] == [machine.name]
    assert len(office.fake.orders) == 1
    await office.attaches(machine)
    await office.step()
    assert office.open_machines[0].state == "attached"


@pytest.mark.fault("4.13")
async def test_a_server_that_was_killed_while_it_submitted_looks_before_it_does_so_again(
    office: Office,
) -> None:
    await office.open()
    await office.queued()
    office.fake.submit_fault, office.fake.status_fault = "accepted", "away"
    await office.step()
    assert office.open_machines[0].state == "asked"
    await office.hold_still()
    office.fake.status_fault = ""
    office.begin()
    await office.open()
    await office.step()
    assert office.open_machines[0].state == "pending"
    assert len(office.fake.orders) == 1


@pytest.mark.parametrize(("on_stop", "left"), [("cancel", "ended"), ("keep", "pending")])
async def test_an_orderly_stop_gives_back_or_keeps(office: Office, on_stop: str, left: str) -> None:
    await office.open(on_stop=on_stop)
    await office.queued()
    await office.step()
    (name,) = office.fake.jobs
    await office.provisioning.close()
    assert office.fake.jobs[name][1] == left
    assert office.fake.closed
    office.begin()
    await office.open(on_stop=on_stop)
    await office.step()
    assert ([m.name for m in office.open_machines] == [name]) is (on_stop == "keep")


async def test_what_could_not_be_given_back_at_the_stop_is_at_the_next_start(office: Office) -> None:
    """B085."""
    await office.open()
    await office.queued()
    await office.step()
    office.fake.deaf = True
    await office.provisioning.close()
    (name,) = office.fake.jobs
    assert office.fake.jobs[name][1] == "pending"
    office.fake.deaf = False
    office.begin()
    await office.open()
    for _ in range(2):
        await office.step()
    assert office.fake.jobs[name][1] == "ended"
    assert (await office.ended()).reason == "the server stopped"
