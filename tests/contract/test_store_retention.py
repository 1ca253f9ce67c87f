"""Deleting: only what is over, in slices, with nothing left behind."""

from __future__ import annotations

import pytest

from farhand.errors import Conflict, NotFound
from farhand.model import AuditEntry, Fire, Hook, Project, Schedule
from farhand.store.retention import OF_JOB, OF_RUN
from farhand.store.runs import Wanted
from farhand_worker import protocol

pytestmark = pytest.mark.anyio

TABLES = ["runs", "jobs", "journals", *OF_RUN, *OF_JOB]


async def counts(store) -> dict[str, int]:
    return await store.database.read(
        lambda c: {table: c.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    )


async def a_whole_run(story, ended: bool = True, calls: int = 5):
    """A run with something in every table."""
    leased = await story.running()
    for number in range(calls):
        await story.report(
            leased, story.log("x" * 100), story.began(f"k{number}"), story.checkpoint(f"k{number}")
        )
    await story.report(leased, *(protocol.Yielded("k0", "loss", step, {}) for step in ("begun", "value")))
    call = (await story.report(leased, story.call("placed"))).changes.enqueued[0]
    placed = await story.running(call)
    await story.report(placed, story.result())
    if ended:
        await story.report(leased, story.result())
    return leased.run.id


async def delete_all(store, ids, rows_max):
    """Slice after slice, as the pruner does; what was refused, and how many slices it took."""
    left, refused, slices = list(ids), [], 0
    while left:
        piece = await store.retention.delete(left, rows_max)
        assert piece.rows <= rows_max + 2  # the run itself, and a second source of one attempt
        refused += piece.refused
        left = left[len(piece.deleted) + len(piece.refused) :]
        slices += 1
    return refused, slices


@pytest.mark.parametrize("rows_max", [1, 3, 1000])
async def test_a_deleted_run_leaves_nothing_behind_and_its_neighbours_whole(store, story, rows_max):
    stays = await a_whole_run(story)
    before = await counts(store)
    gone = await a_whole_run(story)
    refused, slices = await delete_all(store, [gone], rows_max)
    assert await counts(store) == before
    assert refused == []
    assert slices == 1 if rows_max == 1000 else slices > 5
    assert await store.runs.get(gone) is None
    assert await store.runs.get(stays) is not None


async def test_what_is_not_over_is_refused(store, story):
    """B120: and counted; what does not exist any more counts as deleted, so that asking again is harmless."""
    open_run = await a_whole_run(story, ended=False)
    ended = await a_whole_run(story)
    before = await counts(store)
    refused, _ = await delete_all(store, [open_run, "nonsense"], 1000)
    assert refused == [open_run]
    assert await counts(store) == before
    assert (await delete_all(store, [open_run, ended], 1000))[0] == [open_run]


async def test_a_run_whose_call_is_still_being_cancelled_is_not_over(store, story):
    leased = await story.running()
    call = (await story.report(leased, story.call("placed"))).changes.enqueued[0]
    await story.running(call)
    await story.report(leased, story.result())
    assert await story.state(leased.run.id) == "completed"
    assert (await delete_all(store, [leased.run.id], 100))[0] == [leased.run.id]
    assert await store.retention.expired(1e9, 10) == []


async def test_a_run_whose_hook_has_not_ended_is_not_over(store, story):
    leased = await story.running(hooks=(Hook("completed", 0, "tell"),))
    [hook] = (await story.report(leased, story.result())).changes.enqueued
    assert (await delete_all(store, [leased.run.id], 100))[0] == [leased.run.id]
    called = await story.running(hook)
    assert (await delete_all(store, [leased.run.id], 100))[0] == [leased.run.id]
    assert await store.retention.expired(1e9, 10) == []
    await story.report(called, story.result())
    assert await store.retention.expired(1e9, 10) == [leased.run.id]
    assert await delete_all(store, [leased.run.id], 100) == ([], 1)


async def test_a_deleted_flow_stays_hidden_until_its_last_hook_has_ended(store, story):
    leased = await story.running(hooks=(Hook("completed", 0, "tell"),))
    [hook] = (await story.report(leased, story.result())).changes.enqueued
    assert await store.retention.delete_flow("etl", 5.0) == 1
    for _ in range(2):
        assert await store.retention.doomed(5) == []
        assert (await store.runs.page(5)).items == []
    await story.report(await story.running(hook), story.result())
    assert await store.retention.doomed(5) == [leased.run.id]
    await delete_all(store, [leased.run.id], 100)
    assert await store.retention.doomed(5) == []
    assert (await counts(store))["runs"] == 0


async def test_expired_are_those_that_ended_before_oldest_first(store, story):
    first, second = await a_whole_run(story), await a_whole_run(story)
    await a_whole_run(story, ended=False)
    run = await store.runs.get(second)
    assert await store.retention.expired(1e9, 10) == [first, second]
    assert await store.retention.expired(run.ended_at, 10) == [first]
    assert await store.retention.expired(1e9, 1) == [first]


async def test_events_of_no_run_go_by_age(store, story):
    for at in range(10):
        await store.events.add(float(at), "worker.attached", str(at))
    kept = await a_whole_run(story)
    assert [(await store.retention.delete_old("events", 7.0, 5)).rows for _ in range(3)] == [5, 2, 0]
    assert [e.message for e in (await store.events.page()).items if e.run is None] == ["7", "8", "9"]
    assert (await store.events.page(run=kept)).items


async def test_fires_go_by_age_but_for_the_latest_of_each_schedule(store):
    schedules = [Schedule(f"s{n}", "etl", "p", {"kind": "every"}, "{}") for n in range(2)]
    await store.projects.replace(Project("p", "served", "here", "sha256:b", 1, 1), [], schedules, 1.0)
    for at in range(10):
        await store.schedules.fire(Fire("s0", float(at), 20.0, "failed", ""), None)
    await store.schedules.fire(Fire("s1", 2.0, 20.0, "failed", ""), None)
    assert [(await store.retention.delete_old("fires", 7.0, 5)).rows for _ in range(3)] == [5, 2, 0]
    assert [fire.at for fire in await store.schedules.fires("s0", 50)] == [9.0, 8.0, 7.0]
    assert [(await store.retention.delete_old("fires", 99.0, 5)).rows for _ in range(2)] == [2, 0]
    assert {id: fire.at for id, fire in (await store.schedules.last_fires()).items()} == {
        "s0": 9.0,
        "s1": 2.0,
    }


async def test_the_audit_log_goes_by_age(store):
    for at in range(10):
        await store.audit.add(
            AuditEntry(0, float(at), "admin", "anna", "j", "::1", "start", f"{at}", "done", 200, {})
        )
    assert [(await store.retention.delete_old("audit", 7.0, 5)).rows for _ in range(3)] == [5, 2, 0]
    assert [entry.subject for entry in (await store.audit.page(50)).items] == ["9", "8", "7"]


async def test_a_deleted_flow_is_gone_from_every_list_at_once(store, story):
    """B125: whatever the number of its runs; they are deleted later."""
    ids = [await a_whole_run(story) for _ in range(3)]
    assert await store.retention.delete_flow("etl", 5.0) == 3
    assert (await store.runs.page(10)).items == []
    assert await store.runs.get(ids[0]) is None
    assert await store.runs.find(ids[0]) == []
    job = await story.run()  # the name may be used again
    assert [run.id for run in (await store.runs.page(10)).items] == [job.run]
    assert await store.retention.doomed(2) == ids[:2]
    await delete_all(store, ids, 100)
    assert await store.retention.doomed(2) == []
    assert (await counts(store))["runs"] == 1
    with pytest.raises(Conflict, match="1 runs of flow 'etl' have not ended"):
        await store.retention.delete_flow("etl", 6.0)
    with pytest.raises(NotFound):
        await store.retention.delete_flow("none", 6.0)


async def test_digests_are_found_wherever_a_record_names_one(store, story):
    leased = await story.running()
    digests = [f"sha256:{number:064x}" for number in range(3)]
    await story.report(leased, story.checkpoint("a", value={"enc": "json", "digest": digests[0], "size": 1}))
    await story.report(leased, story.result(value={"enc": "pickle", "digest": digests[1], "size": 1}))
    assert await store.retention.digests(limit=1) == {*digests[:2], "sha256:b"}
    assert await store.retention.digests() == {*digests[:2], "sha256:b"}


async def test_runs_are_found_by_the_host_they_were_on(store, story):
    leased = await story.running()
    await story.run()
    assert [run.id for run in (await store.runs.page(5, wanted=Wanted(host="host1"))).items] == [
        leased.run.id
    ]
    assert (await store.runs.page(5, wanted=Wanted(host="host2"))).items == []


def a_flow_begins(story, key, id, nested=None):
    called = {"id": id, "name": "inner", "entry": "m:inner", "params": {}}
    return protocol.TaskBegan(key, "inner", story.now, nested=nested, flow=called)


async def test_the_run_of_a_called_flow_stays_as_long_as_its_caller_goes_on(store, story):
    """What it did is its caller's, which may have to come back to it."""
    leased = await story.running()
    await story.report(leased, a_flow_begins(story, "k", "0inner01"), story.checkpoint("k", flow={}))
    assert await story.state("0inner01") == "completed"
    assert await store.retention.expired(1e9, 10) == []
    assert (await delete_all(store, ["0inner01"], 100))[0] == ["0inner01"]
    await story.report(leased, story.result())
    assert await store.retention.expired(1e9, 10) == [leased.run.id]


async def test_a_caller_is_not_over_while_a_placed_flow_of_it_is_open(store, story):
    leased = await story.running()
    called = {"id": "0inner01", "name": "inner", "entry": "m:inner", "params": {}}
    recorded = await story.report(leased, story.call("p", flow=called))
    await story.running(recorded.changes.enqueued[0])
    await story.report(leased, story.result())
    assert await story.state("0inner01") == "running"
    assert (await delete_all(store, [leased.run.id, "0inner01"], 100))[0] == [leased.run.id, "0inner01"]
    assert await store.retention.expired(1e9, 10) == []


@pytest.mark.parametrize("rows_max", [1, 1000])
async def test_the_runs_of_the_flows_that_a_run_called_go_with_it(store, story, rows_max):
    before = await counts(store)
    leased = await story.running()
    await story.report(
        leased, a_flow_begins(story, "k", "0inner01"), a_flow_begins(story, "kk", "0inner02", nested="k")
    )
    await story.report(leased, story.result())
    assert (await delete_all(store, [leased.run.id], rows_max))[0] == []
    assert await counts(store) == before
