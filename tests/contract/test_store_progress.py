"""What runs are called, how far they say they are, and which calls a call needed."""

from __future__ import annotations

import pytest

from farhand.store.runs import Wanted
from farhand_worker import protocol

pytestmark = pytest.mark.anyio


def progress(story, done, task=None, message=None):
    return protocol.Progress(story.now, done, 10, message, task)


async def test_a_run_is_called_what_its_engine_says_once_the_parameters_are_known(story):
    leased = await story.running()
    recorded = await story.report(leased, protocol.Started(story.now, 42, "3.11.7", "host1", "etl of Oslo"))
    [run] = recorded.changes.runs
    assert (run.name, run.state) == ("etl of Oslo", "running")
    assert (await story.store.runs.get(leased.run.id)).name == "etl of Oslo"
    again = protocol.Started(story.now, 42, "3.11.7", "host1", "etl of Oslo")
    assert (await story.report(leased, again)).changes.runs == ()


async def test_a_run_is_found_by_its_name(story):
    leased = await story.running()
    await story.running()
    await story.report(leased, protocol.Started(story.now, 42, "3.11.7", "host1", "etl of Oslo"))
    page = await story.store.runs.page(10, wanted=Wanted(text="OSLO"))
    assert [run.id for run in page.items] == [leased.run.id]


async def test_the_last_progress_of_a_run_and_of_each_call_is_kept(story):
    leased = await story.running()
    await story.report(leased, story.began("a"), progress(story, 1), progress(story, 2, "a"))
    await story.report(leased, progress(story, 3), progress(story, 4, "a", "reading"))
    run, task = await story.store.runs.get(leased.run.id), await story.task(leased.run.id, "a")
    assert (run.progress["done"], run.progress["total"], "message" in run.progress) == (3, 10, False)
    assert (task.progress["done"], task.progress["message"]) == (4, "reading")
    points = (await story.store.metrics.page(leased.run.id)).items
    assert [point.values["progress"] for point in points] == [0.1, 0.2, 0.3, 0.4]


async def test_the_next_attempt_begins_without_progress(story):
    leased = await story.running()
    await story.report(leased, story.began("a"), progress(story, 1), progress(story, 2, "a"))
    await story.end(leased, "lost")
    assert (await story.store.runs.get(leased.run.id)).progress is None
    assert (await story.task(leased.run.id, "a")).progress is None


async def test_what_a_call_needed_stays_with_it_to_its_end_and_over_attempts(story):
    leased = await story.running()
    began = protocol.TaskBegan("c", "task-c", story.now, needs=["a", "b"], tags=["io"])
    await story.report(leased, began, story.checkpoint("c"))
    await story.report(leased, protocol.TaskBegan("d", "task-d", story.now, needs=["c"]))
    await story.end(leased, "lost")
    again = await story.running(leased.job)
    await story.report(again, story.checkpoint("d"))
    c, d = await story.task(leased.run.id, "c"), await story.task(leased.run.id, "d")
    assert (c.needs, c.tags, d.needs, d.tags) == (("a", "b"), ("io",), ("c",), None)


async def test_a_placed_call_says_what_it_needed(story):
    leased = await story.running()
    await story.report(leased, story.call("p", needs=["a"], tags=["gpu"]))
    task = await story.task(leased.run.id, "p")
    assert (task.needs, task.tags) == (("a",), ("gpu",))


async def test_a_script_names_its_run_in_the_first_line_of_its_journal(store):
    first = ["script", {"run": "run1", "flow": "etl", "params": {}, "at": 1.0, "name": "etl of Oslo"}]
    await store.journals.record("run1", 1, [first, ["progress", {"at": 2.0, "done": 1.0}]], 3.0)
    run = await store.runs.get("run1")
    assert (run.name, run.progress) == ("etl of Oslo", {"at": 2.0, "done": 1.0})
