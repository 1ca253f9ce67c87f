"""Runs as people handle them."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from anyio import wait_all_tasks_blocked

from farhand.engine import attachment, rescuer
from farhand.engine.audit import Told
from farhand.engine.member import Member
from farhand.engine.runs import Runs
from farhand.engine.why import Explanations
from farhand.errors import Conflict, InvalidParameters, NotFound, StoreFailed, Usage
from farhand.model import Ask, AuditEntry
from farhand_worker import protocol
from tests.harness.stores import handed
from tests.unit.engine.records import FLOW, Clock, FakeLink, a_hello
from tests.unit.engine.world import TIMES, World

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"lr": {"type": "number"}, "name": {"type": "string", "default": "x"}},
    "required": ["lr"],
    "additionalProperties": False,
}


@pytest.fixture
async def runs(world: World) -> Runs:
    fit = replace(FLOW, name="fit", schema=SCHEMA, ask=Ask(labels=("gpu",)))
    await world.store.flows.replace("default", [FLOW, fit], 1.0)
    return Runs(world.store, world.queue, world.fleet, world.consequences, dispatcher=world.dispatcher)


async def test_a_run_is_queued_with_the_code_and_the_asks_of_its_flow(runs: Runs, world: World) -> None:
    run = await runs.start("fit", {"name": "b", "lr": 0.1})
    assert (run.state, run.flow, run.params) == ("queued", "fit", '{"lr":0.1,"name":"b"}')
    assert (run.bundle, run.fingerprint) == (FLOW.bundle, FLOW.fingerprint)
    (job,) = world.queue.heads()
    assert (job.run, job.ask, job.age_at) == (run.id, Ask(labels=("gpu",)), run.created_at)
    assert job.args == {"enc": "json", "text": run.params}


@pytest.mark.parametrize("cursor", ["rubbish", "", "x" * 200, "0" * 25 + "\0", "0" * 25 + "U"])
async def test_a_cursor_that_no_page_gave_is_refused(runs: Runs, cursor: str) -> None:
    with pytest.raises(Usage, match="cursor: it must be the `next` of the page before"):
        await runs.page(10, cursor)


async def test_a_page_goes_on_where_the_one_before_ended(runs: Runs) -> None:
    started = [(await runs.start("weather", {})).id for _ in range(2)]
    # Which of two in the same millisecond is the earlier is a matter of chance.
    earlier, later = sorted(started)
    page = await runs.page(1)
    assert [run.id for run in page.items] == [later]
    assert [run.id for run in (await runs.page(1, page.next)).items] == [earlier]


async def test_a_flow_whose_code_is_gone_is_not_started(runs: Runs, world: World) -> None:
    await world.store.flows.replace("default", [], 2.0)
    with pytest.raises(NotFound, match="this server has: none"):
        await runs.start("fit", {"lr": 1})


@pytest.mark.parametrize(
    ("params", "field"),
    [({}, "lr"), ({"lr": "secret-value"}, "lr"), ({"lr": 1, "rate": 2}, "rate")],
)
async def test_parameters_that_do_not_fit_are_refused_naming_the_field_and_never_the_value(
    runs: Runs, world: World, params: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidParameters, match=field) as refusal:
        await runs.start("fit", params)
    assert "secret-value" not in str(refusal.value)
    assert len(world.queue) == 0


async def test_an_idempotency_key_is_not_taken_for_other_parameters(runs: Runs) -> None:
    first = await runs.start("fit", {"lr": 1}, "key")
    with pytest.raises(Conflict, match=f"'key' belongs to run {first.id}"):
        await runs.start("fit", {"lr": 2}, "key")


async def test_the_same_idempotency_key_is_the_same_run(runs: Runs, world: World) -> None:
    first = await runs.start("weather", {}, "monday")
    again = await runs.start("weather", {}, "monday")
    other = await runs.start("weather", {}, "tuesday")
    assert again.id == first.id
    assert other.id != first.id
    assert len(world.queue) == 2


@pytest.mark.parametrize("key", ["", "x" * 201])
async def test_an_idempotency_key_has_a_length(runs: Runs, key: str) -> None:
    with pytest.raises(Usage, match="1 to 200 characters"):
        await runs.start("weather", {}, key)


async def test_a_run_is_found_by_the_start_of_its_id_when_only_one_has_it(runs: Runs) -> None:
    first, second = await runs.start("weather", {}), await runs.start("weather", {})
    assert (await runs.get(first.id)).id == first.id
    unique = next(n for n in range(1, 27) if first.id[:n] != second.id[:n])
    assert (await runs.get(first.id[:unique])).id == first.id
    with pytest.raises(Usage, match="several runs begin with"):
        await runs.get(first.id[: unique - 1])
    for unknown in ("", "zzzz", "%", first.id + "0"):
        with pytest.raises(NotFound, match="there is no run"):
            await runs.get(unknown)


async def test_a_run_that_waits_says_why(runs: Runs, world: World) -> None:
    await world.attach()
    run = await runs.start("fit", {"lr": 1})
    assert (await runs.get(run.id)).message == ""
    await world.hand_over()
    assert (await runs.get(run.id)).message == (
        "waits for label gpu; no attached worker could ever take it: box has no label gpu"
    )


async def test_a_run_that_came_back_to_the_queue_says_what_led_there_and_what_it_waits_for(
    runs: Runs, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(time.monotonic())
    monkeypatch.setattr(rescuer, "time", clock)
    monkeypatch.setattr(attachment, "time", clock)
    _, _, job = await world.worker_with_job()
    await world.started(job)
    clock.now += TIMES.lease_s + TIMES.margin_s
    await world.look()
    await world.hand_over()
    waits = "waits for a free slot; no worker is attached; box could take it and is offline since"
    said = (await runs.get(job.run)).message
    assert said.startswith(f"crash 1 of 3 allowed: worker went away mid-call; {waits}")
    assert said.count("waits for") == 1
    assert (await Explanations(runs, world.queue).why(job.run)).message == said


async def test_a_run_that_waits_names_the_workers_that_are_offline_and_could_take_it(
    runs: Runs, world: World
) -> None:
    await world.attach()
    for name, labels in (("gpu-1", ("gpu",)), ("gpu-2", ("gpu", "big")), ("cpu-1", ())):
        _, link = await world.attach(a_hello(name), labels)
        await world.attachments.leave(world.fleet.member(name), link, "stopped")
    machine = a_hello("slurm-1", ends_at=5e9)
    _, link = await world.attach(machine, ("gpu",))
    await world.attachments.leave(world.fleet.member("slurm-1"), link, "its time is up")
    for name, at in (("gpu-1", 0.0), ("gpu-2", 60.0)):
        world.fleet.member(name).away_at = at
    run = await runs.start("fit", {"lr": 1})
    await world.hand_over()
    world.fleet.member("gpu-2").token_revoked = True
    assert (await runs.get(run.id)).message == (
        "waits for label gpu; no attached worker could ever take it: box has no label gpu"
        "; gpu-2 has label gpu and is offline since 1970-01-01 00:01:00 UTC, and its token has been revoked: "
        "it comes back with a new one only"
        "; gpu-1 has label gpu and is offline since 1970-01-01 00:00:00 UTC"
    )
    why = await Explanations(runs, world.queue).why(run.id)
    assert why.code == "no_worker"
    assert [(each.worker, each.code, each.for_good) for each in why.considered] == [
        ("box", "label_missing", True),
        ("gpu-2", "needs_token", False),
        ("gpu-1", "offline", False),
    ]
    assert (await world.operations.forget("gpu-2"), await world.operations.forget("gpu-1")) == (0, 0)
    await world.hand_over()
    assert "offline" not in (await runs.get(run.id)).message


async def test_a_queued_run_that_is_cancelled_leaves_the_queue(runs: Runs, world: World) -> None:
    run = await runs.start("weather", {})
    assert (await runs.cancel(run.id)).state == "cancelled"
    assert world.queue.heads() == []
    with pytest.raises(Conflict, match="has ended already"):
        await runs.cancel(run.id)


async def test_a_running_run_that_is_cancelled_is_told_to_its_worker(runs: Runs, world: World) -> None:
    """B007: a cancel is never a silent yes."""
    _, link = await world.attach()
    run = await runs.start("weather", {})
    await world.hand_over()
    assert (await runs.cancel(run.id)).state == "cancelling"
    (cancel,) = link.of(protocol.Cancel)
    (assign,) = link.of(protocol.Assign)
    assert (cancel.job, cancel.lease) == (assign.job, assign.lease)


async def test_a_cancelled_run_whose_worker_is_gone_is_cancelled_when_the_lease_ends(
    runs: Runs, world: World
) -> None:
    _, link = await world.attach()
    run = await runs.start("weather", {})
    await world.hand_over()
    await runs.cancel(run.id)
    await world.attachments.leave(world.fleet.member("box"), link, "gone")
    assert (await runs.get(run.id)).state == "cancelled"
    assert len(world.queue) == 0


ENTRY = AuditEntry(0, 5.0, "operator", "anna", "", "10.0.0.1", "start_run", "fit", "done", 202, {})


async def test_a_run_its_audit_entry_and_its_lease_share_one_commit(runs: Runs, world: World) -> None:
    """A free slot: who asks is answered, and the worker told, after the same commit."""
    _, link = await world.attach(labels=("gpu",))
    await world.wakeup.wait(0)
    told = Told(ENTRY)
    before, gate = world.store.database.commits, threading.Event()
    busy = world.store.database.submit(lambda _: gate.wait(10))
    starting = asyncio.create_task(runs.start("fit", {"lr": 0.1}, told=told))
    await world.wakeup.wait()
    world.dispatcher._pass()
    await asyncio.sleep(0)
    gate.set()
    run, _ = await starting, await busy
    await world.dispatcher.settle()
    assert told.written
    assert run.state == "queued"
    assert (await world.store.runs.get(run.id) or run).state == "starting"
    assert [assign.run for assign in link.of(protocol.Assign)] == [run.id]
    assert world.store.database.commits - before <= 2
    (entry,) = (await world.store.audit.page(10)).items
    assert (entry.action, entry.details) == ("start_run", {"made": run.id})


async def ready(world: World) -> tuple[Member, FakeLink]:
    """A worker that is there and has room, and a dispatcher that has looked at it."""
    _, link = await world.attach(labels=("gpu",))
    await world.hand_over()
    await world.wakeup.wait(0)
    return world.fleet.member("box"), link


@pytest.mark.parametrize(("given", "looks"), [(slice(None), 2), (slice(-1), 4)], ids=["whole", "its start"])
async def test_a_run_that_is_asked_for_by_its_whole_id_is_not_looked_for_first(
    runs: Runs, world: World, monkeypatch: pytest.MonkeyPatch, given: slice, looks: int
) -> None:
    """So programs ask, by the thousand; people give the beginning."""
    await ready(world)
    run = await runs.start("fit", {"lr": 0.1})
    read, reads = world.store.database.read, list[Any]()

    async def noting(operation: Any) -> Any:
        reads.append(operation)
        return await read(operation)

    monkeypatch.setattr(world.store.database, "read", noting)
    found, attempts = await runs.detailed(run.id[given])
    assert (found.id, [attempt.worker for attempt in attempts]) == (run.id, ["box"])
    assert len(reads) == looks


async def test_a_run_that_a_worker_is_free_for_is_stored_with_its_lease(runs: Runs, world: World) -> None:
    _, link = await ready(world)
    told, before = Told(ENTRY), world.store.database.operations
    run = await runs.start("fit", {"lr": 0.1}, told=told)
    assert world.store.database.operations - before == 1
    assert (told.written, run.state, len(world.queue)) == (True, "queued", 0)
    (assign,) = link.of(protocol.Assign)
    assert (assign.run, assign.attempt, assign.kept) == (run.id, 1, 0)
    stored = await world.store.runs.get(run.id)
    assert stored is not None
    assert (stored.state, stored.worker, stored.attempt) == ("starting", "box", 1)
    job = await world.store.jobs.get(assign.job)
    assert job is not None
    assert (job.state, job.lease, job.worker) == ("leased", assign.lease, "box")
    assert [attempt.lease for attempt in await world.store.runs.attempts(run.id)] == [assign.lease]
    events = await world.store.events.page(run=run.id)
    assert [event.kind for event in events.items] == ["run.queued", "run.starting"]
    (entry,) = (await world.store.audit.page(10)).items
    assert entry.details == {"made": run.id}


async def test_a_run_does_not_pass_one_that_waits(runs: Runs, world: World) -> None:
    _, link = await ready(world)
    first = await world.start_run(ask=Ask(labels=("gpu",)))
    await world.wakeup.wait(0)
    second = await runs.start("fit", {"lr": 0.1})
    assert link.of(protocol.Assign) == []
    await world.hand_over()
    assert next(assign.run for assign in link.of(protocol.Assign)) == first.run
    assert second.state == "queued"


async def test_a_run_that_the_store_has_no_room_for_is_queued(runs: Runs, world: World) -> None:
    member, link = await ready(world)
    while (job := await world.start_run()) is not None:
        if await handed(world.store, job.id, "box", member.capacity, 1.0) is None:
            break
        world.queue.remove(job.id)
    world.queue.remove(job.id)
    await world.wakeup.wait(0)
    run = await runs.start("fit", {"lr": 0.1})
    assert link.of(protocol.Assign) == []
    assert [job.run for job in world.queue.heads()] == [run.id]
    assert (await world.store.runs.get(run.id) or run).state == "queued"
    assert member.promises == {}
    assert world.wakeup.is_set


async def test_a_worker_is_free_again_when_its_run_could_not_be_stored(
    runs: Runs, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, link = await ready(world)

    def failing(*_: object) -> None:
        raise StoreFailed("the disk is full")

    monkeypatch.setattr("farhand.store.runs.add_notes", failing)
    with pytest.raises(StoreFailed):
        await runs.start("fit", {"lr": 0.1})
    assert member.promises == {}
    assert len(world.queue) == 0
    monkeypatch.undo()
    await world.wakeup.wait(0)
    await runs.start("fit", {"lr": 0.1})
    assert len(link.of(protocol.Assign)) == 1


async def test_a_run_is_handed_over_also_when_whoever_asked_for_it_has_given_up(
    runs: Runs, world: World
) -> None:
    """It is stored with its lease then, and nobody else would send it."""
    _, link = await ready(world)
    asked = await runs.prepare("fit", {"lr": 0.1})
    gate = threading.Event()
    busy = world.store.database.submit(lambda _: gate.wait(10))
    starting = asyncio.create_task(runs._create(*asked))
    await wait_all_tasks_blocked()
    starting.cancel()
    await wait_all_tasks_blocked()
    gate.set()
    await busy
    await world.store.database.write(lambda _: None)
    assert starting.cancelled()
    assert len(link.of(protocol.Assign)) == 1


async def test_a_run_that_was_there_writes_no_second_entry(runs: Runs, world: World) -> None:
    for _ in range(2):
        told = Told(ENTRY)
        await runs.start("fit", {"lr": 0.1}, idempotency_key="k", told=told)
    assert not told.written
    assert len((await world.store.audit.page(10)).items) == 1


async def test_a_run_that_cannot_be_stored_leaves_nothing_in_the_queue(
    runs: Runs, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when a worker was about to be handed its job."""
    _, link = await world.attach(labels=("gpu",))
    await world.wakeup.wait(0)

    def failing(*_: object) -> None:
        raise StoreFailed("the disk is full")

    monkeypatch.setattr("farhand.store.runs.note_run", failing)
    starting = asyncio.create_task(runs.start("fit", {"lr": 0.1}))
    await world.wakeup.wait()
    await world.hand_over()
    with pytest.raises(StoreFailed):
        await starting
    assert len(world.queue) == 0
    assert link.of(protocol.Assign) == []
