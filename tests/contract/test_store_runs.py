"""Runs and their attempts: created once, leased once, concluded once."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from farhand.errors import Conflict, IllegalTransition, NotFound
from farhand.model import Ask, Job, JobSettings, Run
from farhand.resources import Capacity
from farhand.sdk.ids import new_id
from farhand.store.claims import Claim
from farhand.store.leases import lease_numbers
from farhand.store.runs import Wanted, columns_for
from tests.harness.stores import handed

pytestmark = pytest.mark.anyio


def a_run(number: int, **fields: Any) -> tuple[Run, Job]:
    fields = {"flow": "etl", "state": "queued", "reason": "new", "message": "", "params": "{}"} | fields
    run = Run(id=f"r{number:04}", created_at=float(number), **fields)
    job = Job(
        f"j{number:04}", run.id, "run", "queued", run.flow, "m:f", {}, "", Ask(), JobSettings(), 1.0, 1.0
    )
    return run, job


async def test_a_run_is_read_back_as_it_was_created(store):
    run, job = a_run(1, params='{"x":"ü"}', project="p", bundle="sha256:1", fingerprint="f")
    assert await store.runs.create(run, job) == (run, job, True)
    assert await store.runs.get(run.id) == run
    assert await store.jobs.get(job.id) == job
    assert await store.runs.get("none") is None


async def test_the_same_idempotency_key_makes_one_run(store):
    first = await store.runs.create(*a_run(1, idempotency_key="k"))
    again = await store.runs.create(*a_run(2, idempotency_key="k"))
    assert again == (first[0], first[1], False)
    assert await store.runs.get("r0002") is None


async def test_many_starts_with_one_idempotency_key_at_once_make_one_run(store):
    made = await asyncio.gather(*(store.runs.create(*a_run(n, idempotency_key="k")) for n in range(20)))
    assert len({run.id for run, _, _ in made}) == 1
    assert [created for _, _, created in made].count(True) == 1


async def test_an_idempotency_key_belongs_to_its_flow(store):
    await store.runs.create(*a_run(1, idempotency_key="k"))
    _, _, created = await store.runs.create(*a_run(2, idempotency_key="k", flow="other"))
    assert created


async def test_a_run_is_stored_with_the_lease_on_its_job_as_if_it_had_been_queued_first(store):
    run, job = a_run(1)
    leased = await store.runs.start(run, job, Claim("w1", Capacity(1), git="abc"))
    assert (leased.job.state, leased.job.worker, leased.job.attempt) == ("leased", "w1", 1)
    assert (leased.run.state, leased.run.message) == ("starting", "handed to w1")
    assert await store.jobs.get(job.id) == leased.job
    assert await store.runs.get(run.id) == leased.run
    (attempt,) = await store.runs.attempts(run.id)
    assert (attempt.lease, attempt.worker, attempt.git) == (leased.job.lease, "w1", "abc")
    kinds = [event.kind for event in (await store.events.page(run=run.id)).items]
    assert kinds == ["run.queued", "run.starting"]


async def test_a_run_whose_claim_the_store_does_not_agree_to_is_queued(store):
    first = await store.runs.start(*a_run(1), Claim("w1", Capacity(1)))
    run, job = a_run(2)
    assert first is not None
    assert await store.runs.start(run, job, Claim("w1", Capacity(1))) is None
    assert await store.jobs.get(job.id) == job
    assert [event.kind for event in (await store.events.page(run=run.id)).items] == ["run.queued"]


async def test_a_run_id_is_taken_once(store):
    await store.runs.create(*a_run(1))
    with pytest.raises(Conflict):
        await store.runs.create(*a_run(1))


async def test_a_run_cannot_begin_in_the_middle(store):
    with pytest.raises(IllegalTransition):
        await store.runs.create(*a_run(1, state="completed"))


async def test_pages_of_runs_go_from_new_to_old_without_gap_or_repeat(store):
    for number in range(1, 8):
        await store.runs.create(*a_run(number, flow="even" if number % 2 == 0 else "odd"))
    seen, cursor = [], None
    while True:
        page = await store.runs.page(3, cursor)
        seen += [run.id for run in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [f"r{number:04}" for number in range(7, 0, -1)]


async def test_pages_of_runs_can_be_of_one_flow_and_state(story):
    first, _, third = [await story.run("a"), await story.run("b"), await story.run("a")]
    await story.cancel(third.run)
    assert [r.id for r in (await story.store.runs.page(9, None, Wanted(flow="a"))).items] == [
        third.run,
        first.run,
    ]
    assert [r.id for r in (await story.store.runs.page(9, None, Wanted(state="cancelled"))).items] == [
        third.run
    ]
    page = await story.store.runs.page(9, None, Wanted(flow="a", state="queued"))
    assert [r.id for r in page.items] == [first.run]
    assert page.next is None


async def test_a_prefix_finds_one_run_or_shows_that_it_is_ambiguous(store):
    for number in (1, 2, 30):
        await store.runs.create(*a_run(number))
    assert await store.runs.find("r003") == ["r0030"]
    assert await store.runs.find("r00") == ["r0001", "r0002"]
    assert await store.runs.find("x") == []


async def test_two_leases_of_a_job_at_once_have_one_winner(story):
    """B019: the claim is one compare-and-set, whoever reads the same stale row."""
    jobs = [await story.run() for _ in range(50)]
    for job in jobs:
        won = await asyncio.gather(
            *(handed(story.store, job.id, f"w{n}", Capacity(100), story.now) for n in range(4))
        )
        assert len([leased for leased in won if leased is not None]) == 1
        assert len(await story.store.runs.attempts(job.run)) == 1


async def test_lease_numbers_are_never_given_twice(story):
    jobs = [await story.run() for _ in range(30)]
    leases = await asyncio.gather(*(story.lease(job) for job in jobs))
    assert len({leased.job.lease for leased in leases}) == 30


async def test_lease_numbers_go_on_after_what_was_undone_and_in_a_store_that_is_opened_again(
    open_store, tell
):
    given = []

    def undone(connection):
        given.extend(lease_numbers(connection, 5))
        raise ValueError("undone")

    for _ in range(2):
        store = await open_store()
        story = tell(store)
        story._ids = itertools.count(len(given) + 1)
        for _ in range(3):
            given.append((await story.lease(await story.run())).job.lease)
            kept = len(given)
            with pytest.raises(ValueError, match="undone"):
                await store.database.write(undone)
            del given[kept:]  # nobody has heard of them
        await store.close()
    assert given == sorted(set(given))
    assert len(given) == 6


async def test_a_worker_gets_no_more_jobs_than_it_has_slots(story):
    """B063: slots are live leases, so whatever ends a lease frees its slot."""
    jobs = [await story.run() for _ in range(6)]
    got = await asyncio.gather(*(handed(story.store, job.id, "w1", Capacity(2), story.now) for job in jobs))
    taken = [leased for leased in got if leased is not None]
    assert len(taken) == 2
    await story.end(taken[0], "lost")
    await story.report(taken[1], story.exit("not_started"))
    free = [await handed(story.store, job.id, "w1", Capacity(2), story.now) for job in jobs[2:]]
    assert len([leased for leased in free if leased is not None]) == 2


async def test_a_lease_shows_on_the_run_the_job_and_the_attempt(story):
    job = await story.run()
    leased = await story.lease(job, "w7")
    assert (leased.run.state, leased.run.worker, leased.run.attempt) == ("starting", "w7", 1)
    assert (leased.job.state, leased.job.worker, leased.job.attempt) == ("leased", "w7", 1)
    assert leased.kept == 0
    [attempt] = await story.store.runs.attempts(job.run)
    assert (attempt.lease, attempt.number, attempt.worker) == (leased.job.lease, 1, "w7")
    assert [j.id for j in await story.store.jobs.held()] == [job.id]
    assert await story.store.jobs.queued() == []


async def test_the_queue_is_ordered_by_priority_then_age(story):
    old, new = await story.run(), await story.run()
    urgent = Run("urgent", "etl", "queued", "new", "", "{}", story.now)
    job = Job(
        "urgent-job", "urgent", "run", "queued", "etl", "m:f", {}, "", Ask(), JobSettings(),
        story.now + 9, story.now, priority=5,
    )  # fmt: skip
    await story.store.runs.create(urgent, job)
    assert [j.id for j in await story.store.jobs.queued()] == ["urgent-job", old.id, new.id]


async def test_a_queued_run_is_cancelled_at_once(story):
    job = await story.run()
    changes = await story.cancel(job.run)
    assert await story.state(job.run) == "cancelled"
    assert changes.dequeued == (job.id,)
    assert changes.cancel == ()
    assert await handed(story.store, job.id, "w1", Capacity(9), story.now) is None


@pytest.mark.parametrize("begun", [False, True], ids=["leased", "running"])
async def test_a_held_run_is_cancelled_by_its_engine_and_asking_twice_is_harmless(story, begun):
    leased = await story.running() if begun else await story.lease(await story.run())
    for _ in range(2):
        changes = await story.cancel(leased.run.id)
        assert [run.state for run in changes.runs] == ["cancelling"]
        assert [(job.id, job.cancelling) for job in changes.cancel] == [(leased.job.id, True)]
    recorded = await story.report(leased, story.result("cancelled"))
    assert [run.state for run in recorded.changes.runs] == ["cancelled"]
    assert recorded.changes.released == ((leased.job.id, leased.job.lease, "w1"),)


async def test_a_run_that_has_ended_cannot_be_cancelled(story):
    leased = await story.running()
    await story.report(leased, story.result())
    with pytest.raises(Conflict, match="it is completed"):
        await story.cancel(leased.run.id)
    assert await story.state(leased.run.id) == "completed"
    with pytest.raises(NotFound):
        await story.cancel("none")


async def test_a_cancelling_run_whose_worker_is_lost_is_cancelled(story):
    leased = await story.running(crash_retries=3)
    await story.cancel(leased.run.id)
    changes = await story.end(leased, "lost")
    assert [run.state for run in changes.runs] == ["cancelled"]
    assert changes.enqueued == ()


async def test_work_finished_before_the_cancellation_reached_it_counts(story):
    leased = await story.running()
    await story.cancel(leased.run.id)
    await story.report(leased, story.result())
    assert await story.state(leased.run.id) == "completed"


async def test_a_run_that_ends_itself_as_cancelled_is_cancelled(story):
    leased = await story.running()
    await story.report(leased, story.result("cancelled"))
    assert await story.state(leased.run.id) == "cancelled"


async def test_every_state_of_a_run_is_an_entry_of_the_event_log(story):
    leased = await story.running()
    await story.report(leased, story.result())
    page = await story.store.events.page(run=leased.run.id)
    assert [event.kind for event in page.items] == [
        "run.queued",
        "run.starting",
        "run.running",
        "run.completed",
    ]
    assert page.items[-1].worker == "w1"


async def test_runs_are_found_by_sweep_moment_and_text(story, monkeypatch):
    first, second = await story.run("a"), await story.run("b")
    third, _ = await story.run("50_off"), await story.run("50xoff")
    runs = story.store.runs
    assert [r.id for r in (await runs.page(9, None, Wanted(since_id=second.run))).items][1:] == [
        third.run,
        second.run,
    ]
    assert (await runs.page(9, None, Wanted(sweep="s"))).items == []
    assert [r.id for r in (await runs.page(9, None, Wanted(text="50_O"))).items] == [third.run]
    assert (await runs.page(9, None, Wanted(text="50%o"))).items == []
    assert len((await runs.page(9, None, Wanted(text='"A":1'))).items) == 4
    monkeypatch.setattr("farhand.store.runs.SCANNED_MAX", 3)
    page = await runs.page(9, None, Wanted(text=first.run[3:]))
    assert page.items == []
    page = await runs.page(9, page.next, Wanted(text=first.run[3:]))
    assert [r.id for r in page.items] == [first.run]


@pytest.mark.parametrize("text", ["etl", "ETL", "l", "a", "7", "handed to", "w1", '"a"', "é", "K", "%", "_"])
async def test_a_text_is_found_wherever_it_stands(story, text):
    await story.lease(await story.run("etl"))
    (run,) = (await story.store.runs.page(9)).items
    told = "\n".join([run.id, run.flow, run.name, run.message, run.params])
    found = (await story.store.runs.page(9, None, Wanted(text=text))).items
    assert bool(found) is (text.lower() in told.lower())


def test_a_text_is_looked_for_where_it_can_stand_alone():
    everywhere = ["message", "params", "name", "id", "flow"]
    assert columns_for("a7") == columns_for("A7") == columns_for("é") == everywhere
    assert columns_for("noop") == ["message", "params", "name", "flow"]
    assert columns_for("not found") == ["message", "params", "name"]
    assert all(columns_for(character) == everywhere for character in new_id())
