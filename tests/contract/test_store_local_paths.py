"""Paths that a worker does not share with the server: told once a path and worker, and nothing fails."""

from __future__ import annotations

import pytest

from farhand_worker import protocol

pytestmark = pytest.mark.anyio

KIND = "run.local_path_on_worker"


async def test_a_local_path_is_one_event_however_often_attempts_tell_of_it(story):
    leased = await story.running()
    told = protocol.LocalPath(5.0, "/data/a")
    recorded = await story.report(leased, told, told, protocol.LocalPath(6.0, "/data/b"))
    assert recorded.changes.streams == (leased.run.id,)
    await story.end(leased, "lost")
    again = await story.running(leased.job)
    await story.report(again, told, story.result())
    events = (await story.store.events.latest(run=leased.run.id, kind=KIND)).items
    assert [(event.details["path"], event.worker) for event in events] == [
        ("/data/b", "w1"),
        ("/data/a", "w1"),
    ]
    assert events[1].message == "/data/a was used on w1, which shares no such path with the server"
    assert await story.state(leased.run.id) == "completed"
