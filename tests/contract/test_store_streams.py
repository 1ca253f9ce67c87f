"""What nodes yield while they run: numbered in order, begun anew by each attempt, broken with its lease."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.lifecycle import Ending
from farhand.store import streams
from farhand.store.streams import LOST, StreamPage
from farhand_worker import protocol
from farhand_worker.protocol import ProtocolViolation

pytestmark = pytest.mark.anyio


def yielded(step: str, value: Any = None, message: str = "", name: str = "loss") -> protocol.Yielded:
    body = None if value is None else {"enc": "json", "text": str(value)}
    return protocol.Yielded("k", name, step, body, message)


def texts(page: StreamPage | None) -> list[str]:
    assert page is not None
    return [value["text"] for value in page.values]


async def test_values_are_read_in_order_after_a_number_and_by_pages(story, monkeypatch):
    monkeypatch.setattr(streams, "PAGE_CHARS_MAX", 60)
    leased = await story.running()
    page = story.store.streams.page
    assert await page(leased.job.id, "k", "loss", 0) is None
    await story.report(leased, yielded("begun"), *(yielded("value", n) for n in range(3)))
    await story.report(leased, yielded("begun", name="acc"), yielded("value", 7, name="acc"))
    await story.report(leased, *(yielded("value", n) for n in range(3, 6)), yielded("ended"))
    seen, after = [], 0
    while (found := await page(leased.job.id, "k", "loss", after)).values:
        assert len(found.values) < 4
        seen += texts(found)
        after = found.last
    assert seen == list("012345")
    assert (found.state, found.tries, found.total, found.last) == ("ended", 1, 6, 6)
    assert texts(await page(leased.job.id, "k", "acc", 0)) == ["7"]
    assert texts(await page(leased.job.id, "k", "loss", 4))[:1] == ["4"]


async def test_an_attempt_begins_its_streams_anew(story):
    leased = await story.running()
    await story.report(leased, yielded("begun"), yielded("value", 1), yielded("broken", message="no luck"))
    broken = await story.store.streams.page(leased.job.id, "k", "loss", 0)
    assert (broken.state, broken.message, broken.tries) == ("broken", "no luck", 1)
    await story.report(leased, yielded("begun"), yielded("value", 2), yielded("value", 3))
    again = await story.store.streams.page(leased.job.id, "k", "loss", 0)
    assert (again.state, again.tries, again.total, texts(again)) == ("open", 2, 2, ["2", "3"])


async def test_an_open_stream_is_broken_once_its_lease_is_not_current_and_goes_on_under_the_next(story):
    leased = await story.running()
    call = (await story.report(leased, story.call("k"))).changes.enqueued[0]
    placed = await story.running(call)
    await story.report(placed, yielded("begun"), yielded("value", 1))
    page = story.store.streams.page
    assert (await page(leased.job.id, "k", "loss", 0)).state == "open"
    await story.store.reports.end(placed.job.id, placed.job.lease or 0, Ending("lost"), story.now)
    lost = await page(leased.job.id, "k", "loss", 0)
    assert (lost.state, lost.message) == ("broken", LOST)
    again = await story.running(call)
    await story.report(again, yielded("begun"), yielded("value", 2), yielded("ended"))
    await story.report(again, story.result("completed"))
    assert ((found := await page(leased.job.id, "k", "loss", 0)).state, texts(found)) == ("ended", ["2"])


async def test_what_is_no_step_or_was_not_begun_is_the_peers_fault(story):
    leased = await story.running()
    for event in (yielded("value", 1), yielded("paused")):
        with pytest.raises(ProtocolViolation):
            await story.report(leased, event)


async def test_a_job_reads_the_streams_of_its_own_run_alone_and_the_files_they_name(story):
    leased, other = await story.running(), await story.running()
    digest = "sha256:" + "a" * 64
    value = protocol.Yielded("k", "loss", "value", {"enc": "json", "digest": digest, "size": 1})
    await story.report(leased, yielded("begun"), value)
    assert await story.store.streams.page(other.job.id, "k", "loss", 0) is None
    assert await story.store.run_blobs.may_read(leased.job.id, leased.job.lease or 0, digest)
    assert digest in await story.store.retention.digests()
