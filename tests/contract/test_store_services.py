"""Services: offered, handed over, healthy, ended and stopped; what each of these leaves in the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from farhand.errors import Conflict, NotFound
from farhand.lifecycle import STARTS_MAX, Ending
from farhand.model import Ask, Flow, Job, JobSettings, Project, Service, ServiceSpec
from farhand.resources import Capacity
from farhand.store import Changes, Leased, Store
from farhand_worker import protocol
from tests.harness.stores import handed

if TYPE_CHECKING:
    from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio

PROJECT = Project("p", "served", "here", "sha256:b", 1, 1)
FLOW = Flow("train", "p", "m:train", "", {}, Ask(), JobSettings(), "sha256:b", "")
SPEC = ServiceSpec(("serve", "{port}"), 8000)
LLM = Service("llm", "p", ("train",), SPEC, Ask(slots=0), bundle="sha256:b")


async def offer(store: Store, *services: Service, project: Project = PROJECT, now: float = 5.0) -> Changes:
    flow = replace(FLOW, name=f"{FLOW.name}.{project.name}")
    return await store.projects.replace(project, [flow], [], now, services=services)


async def found(store: Store, name: str = "llm") -> Service:
    service = await store.services.get(name)
    assert service is not None
    return service


async def leased(story: Story, job: Job, slots: int = 1, now: float = 6.0) -> Leased:
    taken = await handed(story.store, job.id, "gpu", Capacity(slots, 8, 1, 1000), now)
    assert taken is not None
    return taken


async def on_gpu(story: Story, *services: Service) -> Leased:
    (job,) = (await offer(story.store, *(services or (LLM,)))).enqueued
    return await leased(story, job)


async def report(story: Story, held: Leased, *events: Any) -> Changes:
    return (await story.report(held, *events, source="agent")).changes


STARTED = protocol.Started(7.0, 42, "", "gpu-box")
HEALTHY = protocol.ServiceState(8.0, "healthy", port=8000)


def ended(text: str = "the service exited with code 3: no", at: float = 9.0) -> protocol.Exit:
    return protocol.Exit(at, "crashed", text, 3, tail="one\nno\n")


async def test_an_offered_service_is_queued_and_takes_no_slot(story: Story) -> None:
    held = await on_gpu(story)
    assert (held.job.kind, held.job.ask.slots) == ("service", 0)
    assert held.job.args["command"] == ["serve", "{port}"]
    run = await story.run()
    assert await handed(story.store, run.id, "gpu", Capacity(1), 6.0) is not None
    service = await found(story.store)
    assert (service.state, service.reason, service.worker) == ("degraded", "starting", "gpu")


async def test_what_belongs_to_a_service_is_no_run(story: Story) -> None:
    held = await on_gpu(story)
    await report(story, held, STARTED, protocol.Log(7.0, "listening"))
    assert (await story.store.runs.page(10)).items == []
    assert await story.store.runs.get(held.job.run) is None
    with pytest.raises(NotFound):
        await story.store.runs.cancel(held.job.run, 9.0)
    lines = await story.store.logs.page(held.job.run)
    assert [line.text for line in lines.items] == ["listening"]


async def test_it_is_healthy_where_its_agent_says_so_and_degraded_by_the_reason_given(story: Story) -> None:
    held = await on_gpu(story)
    assert (await report(story, held, STARTED, HEALTHY)).services == ("llm",)
    service = await found(story.store)
    assert (service.state, service.port, service.healthy_at) == ("healthy", 8000, 8.0)
    slow = protocol.ServiceState(9.0, "degraded", "health_timeout", "/health did not answer within 3 s", 8000)
    await report(story, held, slow)
    service = await found(story.store)
    assert (service.state, service.reason, service.port) == ("degraded", "health_timeout", 8000)
    events = [event.kind for event in (await story.store.events.latest(10)).items]
    assert events[:3] == ["service.degraded", "service.healthy", "service.started"]


async def test_one_that_was_healthy_is_restarted_after_a_while_and_keeps_what_it_wrote_last(
    story: Story,
) -> None:
    held = await on_gpu(story)
    (again,) = (await report(story, held, STARTED, HEALTHY, ended())).enqueued
    assert again.not_before > story.now
    service = await found(story.store)
    assert (service.state, service.reason, service.tail) == ("degraded", "restarting", "one\nno\n")
    assert (service.port, service.worker, service.starts, service.restarts) == (None, None, 0, 1)
    assert service.message == "the service exited with code 3: no"


async def test_three_starts_that_never_got_healthy_are_the_last_until_somebody_tries_again(
    story: Story,
) -> None:
    held = await on_gpu(story)
    for number in range(1, STARTS_MAX + 1):
        changes = await report(story, held, STARTED, ended())
        if number < STARTS_MAX:
            held = await leased(story, changes.enqueued[0], now=100.0 * number)
    assert changes.enqueued == ()
    service = await found(story.store)
    assert (service.state, service.reason, service.job) == ("down", "never_healthy", None)
    assert "the service exited with code 3: no" in service.message
    (job,) = (await story.store.services.start("llm", 900.0)).enqueued
    assert job.id != held.job.id
    assert (await found(story.store)).starts == 0


async def test_a_worker_that_is_lost_costs_it_nothing(story: Story) -> None:
    held = await on_gpu(story)
    await report(story, held, STARTED, HEALTHY)
    changes = await story.store.reports.end(
        held.job.id, held.job.lease or 0, Ending("lost", "worker_lost", "worker went away"), 20.0
    )
    assert changes is not None
    (again,) = changes.enqueued
    assert (again.not_before, again.last_worker) == (0.0, None)
    service = await found(story.store)
    assert (service.state, service.reason, service.starts) == ("degraded", "no_worker", 0)


async def test_a_stopped_one_stays_stopped_and_starts_when_it_is_told_to(story: Story) -> None:
    held = await on_gpu(story)
    await report(story, held, STARTED, HEALTHY)
    (asked,) = (await story.store.services.stop("llm", 9.0)).cancel
    assert asked.id == held.job.id
    await report(story, held, protocol.Exit(10.0, "cancelled", "the service was stopped"))
    service = await found(story.store)
    assert (service.state, service.message, service.job) == ("stopped", "the service was stopped", None)
    assert (await offer(story.store, LLM, now=11.0)).enqueued == ()
    assert len((await story.store.services.start("llm", 12.0)).enqueued) == 1
    assert (await story.store.services.start("llm", 13.0)).enqueued == (), "it is to run already"


async def test_what_no_flow_needs_any_more_is_stopped_and_may_not_be_started(story: Story) -> None:
    await offer(story.store, LLM)
    changes = await offer(story.store, now=6.0)
    assert len(changes.dequeued) == 1
    assert (await found(story.store)).state == "stopped"
    assert await story.store.services.list() == []
    with pytest.raises(Conflict, match="no flow"):
        await story.store.services.start("llm", 7.0)
    assert len((await offer(story.store, LLM, now=8.0)).enqueued) == 1, "it is offered again"


async def test_other_code_leaves_it_alone_and_another_description_begins_it_anew(story: Story) -> None:
    held = await on_gpu(story)
    await report(story, held, STARTED, HEALTHY)
    assert (await offer(story.store, replace(LLM, bundle="sha256:c"))) == Changes()
    other = replace(LLM, spec=replace(SPEC, command=("serve", "better", "{port}")))
    assert len((await offer(story.store, other)).cancel) == 1
    changes = await report(story, held, protocol.Exit(10.0, "cancelled", "the service was stopped"))
    (job,) = changes.enqueued
    assert list(job.args["command"]) == ["serve", "better", "{port}"]
    assert (await found(story.store)).state == "degraded"


async def test_two_projects_cannot_have_a_service_of_one_name(story: Story) -> None:
    await offer(story.store, LLM)
    elsewhere = replace(PROJECT, name="q", origin="deployed")
    with pytest.raises(Conflict, match="'llm'"):
        await offer(story.store, LLM, project=elsewhere)


async def test_an_unknown_flavor_is_its_end_until_it_is_there(story: Story) -> None:
    await offer(story.store, replace(LLM, ask=Ask(flavor="big", slots=0)))
    service = await found(story.store)
    assert (service.state, service.reason) == ("down", "unknown_flavor")


async def test_its_worker_may_read_its_weights_and_nothing_else(story: Story) -> None:
    weights = "sha256:" + "a" * 64
    held = await on_gpu(story, replace(LLM, spec=replace(SPEC, weights=weights)))
    may_read = story.store.run_blobs.may_read
    assert await may_read(held.job.id, held.job.lease or 0, weights)
    assert not await may_read(held.job.id, held.job.lease or 0, "sha256:" + "b" * 64)
    assert weights in await story.store.retention.digests()


async def test_another_kind_of_job_is_no_service(story: Story) -> None:
    held = await story.running()
    with pytest.raises(protocol.ProtocolViolation):
        await report(story, held, HEALTHY)
