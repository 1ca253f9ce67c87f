"""The pruner: what goes and what stays, in slices that learn how large they may be."""

from __future__ import annotations

import os
import time

import pytest

from farhand.blobs import Blobs
from farhand.engine import pruner
from farhand.engine.pruner import GRACE_S, Pruner
from farhand.errors import Conflict
from farhand.resources import Capacity
from farhand.store.retention import Slice
from farhand_worker import protocol
from tests.harness.stores import handed

pytestmark = pytest.mark.anyio
LONG_AGO = 2.0


@pytest.fixture
def blobs(tmp_path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def age(blobs: Blobs, digest: str) -> str:
    """Make a blob old enough to go."""
    os.utime(blobs.path(digest), (LONG_AGO, LONG_AGO))
    return digest


async def ended(world, *events) -> str:
    """A run that has ended; returns its id."""
    job = await world.start_run()
    leased = await handed(world.store, job.id, "box", Capacity(100), 1.0)
    await world.report(
        leased.job, protocol.Started(LONG_AGO, 1, "3"), *events, protocol.Result("completed", 3.0)
    )
    return job.run


async def test_what_ended_long_ago_goes_and_what_did_not_end_stays(world, blobs):
    old = await ended(world)
    under_way = await world.start_run()
    keeper = Pruner(world.store, blobs)
    await keeper.prune(1e9)
    assert await world.store.runs.get(old)  # 0 keeps for ever
    keeper = Pruner(world.store, blobs, keep_s=100.0)
    await keeper.prune(50.0)
    assert await world.store.runs.get(old)
    await keeper.prune(1e9)
    assert await world.store.runs.get(old) is None
    assert await world.store.runs.get(under_way.run)
    assert keeper.counters.runs == 1
    with pytest.raises(Conflict):
        await keeper.delete_run(under_way.run)


async def test_a_blob_goes_when_nothing_names_it_and_nobody_asked_for_it_lately(world, blobs):
    named, needed, young, asked, unnamed = (age(blobs, blobs.put_bytes(text.encode())) for text in "abcde")
    os.utime(blobs.path(young))
    assert blobs.has(asked)
    await ended(world, protocol.Artifact("a", named, 1, 3.0))
    keeper = Pruner(world.store, blobs, lambda: [needed], keep_s=100.0)
    await keeper.sweep(time.time())
    kept = [digest for digest in (named, needed, young, asked, unnamed) if blobs.has(digest)]
    assert kept == [named, needed, young, asked]
    assert keeper.counters.blobs == 1
    await keeper.prune(1e9)  # its run goes
    age(blobs, named)
    await keeper.sweep(time.time())
    assert not blobs.has(named)


def test_a_blob_that_is_put_again_while_it_is_being_deleted_stays(blobs):
    digest = age(blobs, blobs.put_bytes(b"x"))
    moment = time.time() - GRACE_S
    assert blobs.older_than(moment) == [digest]
    blobs.put_bytes(b"x")
    assert not blobs.delete(digest, moment)
    assert blobs.has(digest)


async def test_slices_grow_while_they_are_short_and_shrink_when_they_are_long(world, blobs, monkeypatch):
    keeper = Pruner(world.store, blobs, keep_s=1.0)
    for took_s in (0.001, 0.001, 0.1):
        await keeper._count(Slice(rows=1, took_s=took_s))
    assert keeper._rows == 156
    assert keeper.counters.longest_s == 0.1
    monkeypatch.setattr(pruner, "SLICE_S", 0.0)
    for _ in range(20):
        await keeper._count(Slice(rows=1, took_s=1e-9))
    assert keeper._rows == pruner.ROWS_MIN


async def test_ten_thousand_runs_are_deleted_in_batches_and_those_under_way_are_refused(world, blobs):
    """B120: counts are exact, and a deletion that was interrupted goes on."""
    under_way = {(await world.start_run(flow="f")).run for _ in range(50)}

    def fill(connection) -> None:
        run = "SELECT {}, flow, 'completed', reason, message, params, created_at, project, origin, bundle,"
        run += " fingerprint, 2.0, 3.0, worker, attempt, result, error FROM runs LIMIT 1"
        columns = (
            "id, flow, state, reason, message, params, created_at, project, origin, bundle, fingerprint,"
        )
        columns += " started_at, ended_at, worker, attempt, result, error"
        for number in range(10_000):
            connection.execute(f"INSERT INTO runs ({columns}) {run.format(repr(f'{number:026}'))}")

    await world.store.database.write(fill)
    keeper = Pruner(world.store, blobs)
    flow = (await world.store.runs.page(1)).items[0].flow
    interrupted = await keeper.delete_runs(500, None, before=None, flow=flow)
    assert (interrupted.deleted, interrupted.refused) == (450, 50)
    deleted = refused = 0
    cursor = None
    while True:
        batch = await keeper.delete_runs(500, cursor, before=None, flow=flow)
        deleted, refused, cursor = deleted + batch.deleted, refused + batch.refused, batch.next
        if cursor is None:
            break
    assert (deleted, refused) == (9550, 50)
    assert {run.id for run in (await world.store.runs.page(100)).items} == under_way


async def test_an_old_run_that_cannot_be_deleted_does_not_keep_the_pruner_busy_for_ever(world, blobs):
    """B121: a row with a value that nobody expects; SQLite lets a key of text be NULL."""
    good = await ended(world)
    columns = (
        "flow, state, reason, message, params, created_at, project, origin, bundle, fingerprint, attempt"
    )
    await world.store.database.write(
        lambda connection: connection.execute(
            f"INSERT INTO runs (id, ended_at, {columns}) SELECT NULL, 1.0, {columns} FROM runs"
        )
    )
    await Pruner(world.store, blobs, keep_s=1.0).prune(1e9)
    assert await world.store.runs.get(good) is None
