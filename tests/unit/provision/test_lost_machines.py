"""A machine from a provisioner that is lost with what it runs: nobody's fault, up to a bound."""

from __future__ import annotations

import pytest

from farhand.engine import attachment as attachment_module
from farhand.engine import rescuer as rescuer_module
from farhand.lifecycle import MACHINES_LOST_MAX
from farhand.model import Job, JobSettings
from tests.unit.engine.records import Clock
from tests.unit.engine.world import TIMES
from tests.unit.provision.conftest import Office, assigned

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (rescuer_module, attachment_module):
        monkeypatch.setattr(module, "time", clock)
    return clock


async def dies_with(office: Office, clock: Clock, job: Job, word: str) -> Job:
    """A machine comes, begins the job, and is never heard of again; the scheduler says so in the end."""
    await office.step()
    (machine,) = office.open_machines
    link = await office.attaches(machine)
    await office.step()
    assert assigned(link) == [job.id]
    await office.world.started(await office.world.job(job))
    clock.now += TIMES.lease_s + TIMES.margin_s
    await office.world.look()
    office.fake.let(machine.name, "ended", word)
    await office.step()
    return await office.world.job(job)


@pytest.mark.fault("4.7")
async def test_a_dead_node_costs_no_crash_and_what_kills_its_machine_each_time_ends(
    office: Office, clock: Clock
) -> None:
    await office.open()
    job = await office.queued(settings=JobSettings(crash_retries=1))
    for number in range(1, MACHINES_LOST_MAX + 1):
        job = await dies_with(office, clock, job, "NODE_FAIL")
        assert (job.state, job.crashes, job.retries_used) == ("queued", 0, 0)
        said = (await office.world.run_of(job)).message
        assert said == f"lost machine {number} of 5 that cost nothing: worker went away mid-call"
    job = await dies_with(office, clock, job, "NODE_FAIL")
    assert (job.state, job.crashes) == ("queued", 1)
    await dies_with(office, clock, job, "NODE_FAIL")
    run = await office.world.run_of(job)
    assert (run.state, run.reason) == ("crashed", "worker_lost")


@pytest.mark.fault("4.7")
async def test_a_scheduler_that_knows_first_that_a_node_is_dead_changes_nothing(
    office: Office, clock: Clock
) -> None:
    """The machine is recorded as ended, and its token revoked, before the lease of its job runs out."""
    await office.open()
    job = await office.queued()
    await office.step()
    (machine,) = office.open_machines
    await office.attaches(machine)
    await office.step()
    await office.world.started(await office.world.job(job))
    office.fake.let(machine.name, "ended", "NODE_FAIL")
    await office.step()
    assert (await office.world.job(job)).state == "running"
    clock.now += TIMES.lease_s + TIMES.margin_s
    await office.world.look()
    after = await office.world.job(job)
    assert (after.state, after.crashes) == ("queued", 0)


async def test_whoever_allows_no_crash_gets_no_second_attempt_on_a_machine_either(
    office: Office, clock: Clock
) -> None:
    await office.open()
    job = await office.queued(settings=JobSettings(crash_retries=0))
    await dies_with(office, clock, job, "PREEMPTED")
    run = await office.world.run_of(job)
    assert (run.state, run.message) == ("crashed", "worker went away mid-call")
