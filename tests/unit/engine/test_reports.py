"""What workers report is typed, recorded once, and read back in pages that fit a frame."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.errors import StaleLease
from farhand.model import Job
from farhand.store.tasks import outcome_body
from farhand_worker import protocol
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio


def a_checkpoint(number: int, text: str = "1") -> protocol.Checkpoint:
    value = {"enc": "json", "text": text}
    return protocol.Checkpoint(f"k{number}", "fit", "completed", 1.0, 2.0, value=value)


async def every_page(world: World, job: Job) -> list[list[dict[str, Any]]]:
    pages: list[list[dict[str, Any]]] = []
    after = 0
    while True:
        page = await world.reports.kept(job.id, after)
        if not page["more"]:
            assert page["items"] == []
            return pages
        pages.append(page["items"])
        after = page["items"][-1]["number"]


async def test_a_batch_is_recorded_and_followed_up(world: World) -> None:
    _, _, job = await world.worker_with_job()
    async with world.bus.subscribe() as notices:
        events = [protocol.Started(2.0, 1, "3.11"), protocol.Result("completed", 3.0)]
        assert await world.report(job, *events) == 2
        world.bus.close()
        states = [notice.record.state async for notice in notices if notice.kind == "run"]
    assert states == ["completed"]
    assert world.fleet.member("box").busy == 0


async def test_a_batch_sent_again_is_acknowledged_and_changes_nothing(world: World) -> None:
    _, _, job = await world.worker_with_job()
    events = [protocol.Started(2.0, 1, "3.11"), protocol.Log(2.0, "once"), protocol.Result("completed", 3.0)]
    for _ in range(3):
        assert await world.report(job, *events) == 3
    assert [line.text for line in (await world.store.logs.page(job.run)).items] == ["once"]


async def test_a_report_under_another_workers_lease_is_refused(world: World) -> None:
    _, _, job = await world.worker_with_job()
    forged = protocol.Event(
        job.id, job.lease or 0, "engine", 1, [["result", {"state": "completed", "at": 3.0}]]
    )
    with pytest.raises(StaleLease):
        await world.reports.record_all([forged], "another")
    assert not await world.reports.is_current(job.id, job.lease or 0, "another")
    assert (await world.run_of(job)).state == "starting"
    assert await world.reports.record_all([forged], "box") == (1,)


async def test_a_report_under_an_old_lease_is_refused(world: World) -> None:
    _, _, job = await world.worker_with_job()
    await world.attach()
    await world.hand_over()
    with pytest.raises(StaleLease):
        await world.report(job, protocol.Result("completed", 3.0))
    assert not await world.reports.is_current(job.id, job.lease or 0, "box")
    assert (await world.run_of(job)).state == "starting"


@pytest.mark.parametrize(
    "entry",
    [
        [],
        ["log"],
        ["unheard of", {}],
        ["log", {}],
        ["log", {"at": "noon", "text": "x"}],
        ["metric", {"at": 1.0, "values": {"loss": "low"}}],
        ["result", None],
        [["log"], {}],
    ],
    ids=str,
)
async def test_what_is_no_event_is_the_peers_fault(world: World, entry: list[Any]) -> None:
    _, _, job = await world.worker_with_job()
    with pytest.raises(protocol.ProtocolViolation, match="not an event"):
        await world.reports.record_all([protocol.Event(job.id, job.lease or 0, "engine", 1, [entry])], "box")


async def test_a_gap_is_the_peers_fault(world: World) -> None:
    _, _, job = await world.worker_with_job()
    with pytest.raises(protocol.ProtocolViolation, match="missing"):
        await world.report(job, protocol.Log(2.0, "x"), first=3)


async def test_kept_outcomes_come_in_order_until_there_are_no_more(world: World) -> None:
    _, _, job = await world.worker_with_job()
    await world.report(job, protocol.Started(1.0, 1, "3.11"), *(a_checkpoint(n) for n in range(5)))
    (page,) = await every_page(world, job)
    assert [item["key"] for item in page] == ["k0", "k1", "k2", "k3", "k4"]
    (task, *_) = (await world.store.tasks.page(job.run)).items
    assert page[0]["body"] == outcome_body(task)
    assert (task.key, task.value) == ("k0", {"enc": "json", "text": "1"})


async def test_a_page_of_large_outcomes_fits_a_frame(world: World) -> None:
    """Values up to the inline limit, hundreds of them, must not make a reply that closes the session."""
    _, _, job = await world.worker_with_job()
    large = "x" * (protocol.INLINE_BYTES_MAX - 200)
    await world.report(job, protocol.Started(1.0, 1, "3.11"))
    for number in range(40):
        await world.report(job, a_checkpoint(number, large), first=2 + number)
    pages = await every_page(world, job)
    assert [item["key"] for page in pages for item in page] == [f"k{number}" for number in range(40)]
    for page in pages:
        reply = protocol.Reply("q", job.id, 1, {"items": page, "more": True})
        assert len(protocol.encode(reply)) <= protocol.FRAME_BYTES_MAX
