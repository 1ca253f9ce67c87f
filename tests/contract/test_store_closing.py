"""What calls had placed ends with them, however many placed something and however deep."""

from __future__ import annotations

import pytest

from farhand.store import closing
from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("at_once", [1, 2, 100])
async def test_calls_of_calls_end_with_the_call_that_placed_the_first_of_them(
    story: Story, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(closing, "_PLACERS_MAX", at_once)
    run = (await story.running()).job.run
    top = await story.running(await placed(story, run, "top"))
    for key in ("a", "b", "c"):
        middle = await story.running(await placed(story, run, key, top.job.id))
        await placed(story, run, f"{key}-waits", middle.job.id)
        await story.running(await placed(story, run, f"{key}-held", middle.job.id))
    changes = (await story.report(top, story.result())).changes
    assert {job.key for job in changes.cancel} == {"a", "b", "c", "a-held", "b-held", "c-held"}
    for key in ("a", "b", "c"):
        assert (await story.task(run, f"{key}-waits")).state == "cancelled"
        assert (await story.task(run, f"{key}-held")).state == "running"


async def placed(story: Story, run: str, key: str, parent: str = "") -> str:
    """The id of the job of a call that the run's job, or one of its calls', places."""
    parent = parent or run.replace("run", "job")
    lease = (await story.job(parent)).lease or 0
    sent = story.sent.get((parent, lease, "engine"), 0) + 1
    recorded = await story.store.reports.record(parent, lease, "engine", sent, [story.call(key)], story.now)
    story.sent[parent, lease, "engine"] = recorded.seq
    (job,) = recorded.changes.enqueued
    return job.id
