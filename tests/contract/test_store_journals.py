"""Journals of scripts: imported line by line, once each, however often they are read."""

from __future__ import annotations

import pytest

from farhand.errors import NotFound
from farhand_worker.protocol import ProtocolViolation

pytestmark = pytest.mark.anyio

SCRIPT = [
    "script",
    {"run": "s1", "flow": "etl", "project": "p", "params": {"n": 1}, "at": 5.0, "pid": 7, "host": "h",
     "python": "3.9.18", "file": "etl.py"},
]  # fmt: skip
LOG = ["log", {"at": 6.0, "text": "hello"}]
BIG = {"enc": "json", "digest": "sha256:aa", "size": 70000}
CHECKPOINT = [
    "checkpoint",
    {"key": "k", "name": "extract", "state": "completed", "started_at": 6.0, "ended_at": 7.0, "value": BIG},
    ["sha256:aa"],
]
RESULT = ["result", {"state": "completed", "at": 9.0, "value": {"enc": "json", "text": "3"}}]
WHOLE = [SCRIPT, LOG, CHECKPOINT, RESULT]


async def test_the_first_record_makes_a_run_that_is_running(store):
    assert await store.journals.last("s1") == 0
    assert await store.journals.record("s1", 1, [SCRIPT], 10.0) == 1
    run = await store.runs.get("s1")
    assert run is not None
    assert (run.state, run.origin, run.flow, run.project, run.params) == (
        "running", "script", "etl", "p", '{"n":1}',
    )  # fmt: skip
    assert (run.created_at, run.started_at) == (5.0, 5.0)
    assert await store.journals.open_runs() == ["s1"]
    [event] = (await store.events.page(run="s1")).items
    assert (event.kind, event.details["pid"], event.details["file"]) == ("run.running", 7, "etl.py")


async def test_a_whole_journal_is_a_completed_run(store):
    assert await store.journals.record("s1", 1, WHOLE, 10.0) == 4
    run = await store.runs.get("s1")
    assert run is not None
    assert (run.state, run.result, run.ended_at) == ("completed", {"enc": "json", "text": "3"}, 9.0)
    [task] = (await store.tasks.page("s1")).items
    assert (task.state, task.value, task.job) == ("completed", BIG, None)
    assert [line.text for line in (await store.logs.page("s1")).items] == ["hello"]
    assert await store.journals.open_runs() == []


async def test_lines_imported_again_change_nothing(store):
    for first in (1, 2, 3, 4, 1):
        last = await store.journals.record("s1", first, WHOLE[first - 1 :], 10.0)
    assert last == 4
    assert await store.journals.last("s1") == 4
    assert len((await store.logs.page("s1")).items) == 1
    assert len((await store.tasks.page("s1")).items) == 1
    assert len((await store.events.page(run="s1")).items) == 2


async def test_lines_may_not_be_missing(store):
    await store.journals.record("s1", 1, [SCRIPT], 10.0)
    with pytest.raises(ProtocolViolation, match="2 to 3"):
        await store.journals.record("s1", 4, [RESULT], 10.0)
    assert await store.journals.last("s1") == 1


@pytest.mark.parametrize(
    "records",
    [
        [LOG],
        [["script", {**SCRIPT[1], "run": "other"}]],
        [SCRIPT, SCRIPT],
        [SCRIPT, ["started", {"at": 1.0, "pid": 1, "python": "3"}]],
        [SCRIPT, ["nonsense", {}]],
        [SCRIPT, ["result", {"state": "maybe", "at": 1.0}]],
        [SCRIPT, ["log", {"at": "x"}]],
        [SCRIPT, []],
    ],
)
async def test_what_is_no_journal_is_refused_and_nothing_of_it_kept(store, records):
    with pytest.raises(ProtocolViolation):
        await store.journals.record("s1", 1, records, 10.0)
    assert await store.runs.get("s1") is None


async def test_a_script_that_died_is_crashed_once(store):
    begun = ["task", {"key": "k", "name": "extract", "at": 6.0}]
    await store.journals.record("s1", 1, [SCRIPT, begun], 10.0)
    changes = await store.journals.crash("s1", 20.0, "signal 9")
    [run] = changes.runs
    assert (run.state, run.reason, run.message, run.ended_at) == ("crashed", "script_died", "signal 9", 20.0)
    assert (await store.tasks.page("s1")).items[0].state == "crashed"
    assert (await store.journals.crash("s1", 21.0, "again")).runs == ()
    assert await store.journals.open_runs() == []


async def test_a_script_that_completed_is_not_crashed(store):
    """B004: a terminal state is final."""
    await store.journals.record("s1", 1, WHOLE, 10.0)
    await store.journals.crash("s1", 20.0, "too late")
    run = await store.runs.get("s1")
    assert run is not None
    assert run.state == "completed"


async def test_a_result_after_the_crash_is_read_and_changes_nothing(store):
    await store.journals.record("s1", 1, [SCRIPT], 10.0)
    await store.journals.crash("s1", 20.0, "gone")
    assert await store.journals.record("s1", 2, [LOG, CHECKPOINT, RESULT], 21.0) == 4
    run = await store.runs.get("s1")
    assert run is not None
    assert run.state == "crashed"


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_a_script_has_one_attempt(store, state):
    error = {"type": "ValueError", "module": "builtins", "message": "no", "traceback": ""}
    result = ["result", {"state": state, "at": 9.0, "message": "no", "error": error}]
    await store.journals.record("s1", 1, [SCRIPT, result], 10.0)
    run = await store.runs.get("s1")
    assert run is not None
    assert (run.state, run.error) == (state, error)


async def test_text_that_is_no_unicode_does_not_stop_a_journal(store):
    await store.journals.record("s1", 1, [SCRIPT, ["log", {"at": 6.0, "text": "\ud800"}]], 10.0)
    assert (await store.logs.page("s1")).items[0].text == "\\ud800"


async def test_a_script_of_nobody_cannot_crash(store):
    with pytest.raises(NotFound):
        await store.journals.crash("none", 1.0, "")
