"""What a worker's own checkout makes of placement: it is asked what it has, and takes nothing else."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from farhand.engine.fitness import FlowCode
from farhand.model import Job, JobSettings
from farhand_worker import protocol
from tests.unit.engine.records import FLOW, FakeLink, a_hello
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio

OLD, NEW, OTHER = ("sha256:" + digit * 64 for digit in "789")


async def attached(world: World) -> FakeLink:
    """A worker in a checkout, on a server whose flows are of `NEW` and `OTHER`."""
    world.fitness.flows([NEW, OTHER])
    _, link = await world.attach(a_hello(checkout="/srv/project", git="main 0123456789ab"))
    return link


async def says(world: World, **differs: list[str]) -> None:
    names = {"new": NEW, "other": OTHER, "old": OLD}
    answer = protocol.Changed(git="main 999", differs={names[name]: files for name, files in differs.items()})
    await world.attachments.changed(world.fleet.member("box"), answer)
    await world.hand_over()


async def queued(world: World, fingerprint: str) -> Job:
    job = await world.start_run(fingerprint=fingerprint)
    await world.hand_over()
    return job


def asked(link: FakeLink) -> list[list[str]]:
    return [compare.fingerprints for compare in link.of(protocol.Compare)]


def reason(world: World, job: Job) -> tuple[str, str]:
    found = world.queue.waiting(job.id)
    assert found is not None
    (refusal,) = found.refusals
    return refusal.code, refusal.message


async def test_a_checkout_is_asked_for_what_the_flows_are_of_and_again_when_they_change(world: World) -> None:
    link = await attached(world)
    assert asked(link) == [[NEW, OTHER]]
    world.fitness.offered([], [NEW, OTHER])
    assert len(asked(link)) == 1, "nothing new to ask for"
    world.fitness.offered([], [OLD, NEW])
    assert OLD in asked(link)[1]


async def test_a_worker_with_bundles_is_asked_nothing(world: World) -> None:
    world.fitness.flows([NEW])
    _, link = await world.attach()
    assert asked(link) == []


async def test_it_takes_what_it_has_and_the_files_that_differ_are_named(world: World) -> None:
    link = await attached(world)
    job = await queued(world, NEW)
    assert reason(world, job)[0] == "checkout_unknown"
    await says(world, new=["a.py", "b.py"], other=[])
    assert reason(world, job) == ("checkout_differs", "has a checkout that differs in a.py, b.py")
    assert (await world.run_of(job)).state == "queued", "it waits for a pull"
    assert world.fitness.drift("box") == "differs in a.py, b.py"
    await says(world, new=[], other=[])
    assert reason(world, job)[0] == "import_check"
    assert [assign.kind for assign in link.of(protocol.Assign)] == [protocol.IMPORT]
    stored = await world.store.workers.get("box")
    assert stored is not None
    assert (stored.checkout, stored.git) == ("/srv/project", "main 999")


async def test_code_that_no_flow_is_of_any_more_is_asked_for_when_a_run_waits_for_it(world: World) -> None:
    link = await attached(world)
    await says(world, new=[], other=[])
    await queued(world, OLD)
    assert asked(link)[-1] == [OLD, NEW, OTHER]
    await queued(world, OLD)
    assert len(asked(link)) == 2, "it is asked once"


async def test_what_a_worker_has_of_each_flow_is_told(world: World) -> None:
    await attached(world)
    await says(world, new=["a.py"], other=[])
    flow = replace(FLOW, fingerprint=NEW)
    (code,) = world.fitness.code_of("box", [flow])
    message = "has a checkout that differs in a.py"
    assert code == FlowCode("weather", NEW, "checkout_differs", message, ("a.py",))
    assert world.fitness.code_of("nobody", [flow]) == []


async def test_a_change_of_what_is_installed_is_an_event_from_the_second_on(world: World) -> None:
    await world.attach()
    member = world.fleet.member("box")
    for digest in ("sha256:1", "sha256:1", "sha256:2"):
        await world.attachments.changed(member, protocol.Changed(environment=digest))
    assert (await world.event_kinds()).count("worker.environment") == 1
    stored = await world.store.workers.get("box")
    assert stored is not None
    assert stored.environment == "sha256:2"
    assert stored.environment_at is not None


async def test_a_worker_that_can_take_nothing_is_given_nothing_until_it_can_or_begins_anew(
    world: World,
) -> None:
    """It counts at once: what it says next may be that a job is given back."""
    await world.attach()
    member = world.fleet.member("box")
    noting = world.attachments.changed(member, protocol.Changed(trouble="its disk is full"))
    assert (member.takes_work, member.candidate.trouble) == (False, "its disk is full")
    await noting
    await world.attachments.changed(member, protocol.Changed(git="main 1"))
    assert not member.takes_work, "what is not said stays"
    await world.attachments.changed(member, protocol.Changed(trouble=""))
    assert member.takes_work
    await world.attachments.changed(member, protocol.Changed(trouble="its disk is full"))
    await world.attach()
    assert world.fleet.member("box").takes_work


@pytest.mark.fault("4.9")
async def test_a_job_is_not_begun_on_a_machine_that_is_taken_away_before_it_must_have_ended(
    world: World,
) -> None:
    """B083: it waits for another, one that fits is placed behind it, and it never counts as failed."""
    await world.attach(a_hello(ends_at=time.time() + 300))
    long = await world.start_run(settings=JobSettings(timeout_s=1800))
    short = await world.start_run(settings=JobSettings(timeout_s=60))
    await world.hand_over()
    code, message = reason(world, long)
    assert code == "ends_too_soon"
    assert "and it may take 1800 s" in message
    assert (await world.job(short)).state == "leased"
    assert (await world.job(long)).state == "queued"


async def test_code_that_was_put_as_a_document_goes_to_a_checkout_like_to_any_worker(world: World) -> None:
    await attached(world)
    job = replace(await queued(world, NEW), entry="farhand_declared.flow:flow")
    found = world.fitness.against(job, world.fleet.member("box"))
    assert found is None or found.code == "import_check"
