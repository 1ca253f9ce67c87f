"""Flows called inside of runs: records of their own, under the job of whoever called them."""

from __future__ import annotations

import pytest

from farhand.errors import Conflict
from farhand.store.runs import Wanted
from farhand_worker import protocol

pytestmark = pytest.mark.anyio

HOOKS = [
    {"state": "completed", "index": 0, "name": "tell"},
    {"state": "crashed", "index": 0, "name": "mourn"},
]


def flow(id="0inner01", name="inner", **fields):
    return {"id": id, "name": name, "entry": "m:inner", "params": {"n": 1}, **fields}


def began(story, key, nested=None, **fields):
    return protocol.TaskBegan(key, "inner", story.now, nested=nested, flow=flow(**fields))


def ended(story, key, state="completed", **fields):
    said = {} if state == "completed" else {"reason": "exception", "message": "it broke"}
    return story.checkpoint(key, state, flow=said, **fields)


async def below(story, root):
    page = await story.store.runs.page(100, wanted=Wanted(parent=root))
    return {run.key: run for run in page.items}


async def test_a_called_flow_has_a_run_of_its_own_that_says_who_called_it(story):
    leased = await story.running()
    recorded = await story.report(leased, began(story, "k", run_name="inner of 1"))
    [run] = recorded.changes.runs
    assert (run.id, run.flow, run.name, run.state, run.params) == (
        "0inner01", "inner", "inner of 1", "running", '{"n":1}',
    )  # fmt: skip
    root = leased.run.id
    assert (run.parent, run.root, run.key, run.worker, run.host) == (root, root, "k", "w1", "host1")
    assert (await story.task(root, "k")).flow_run == run.id
    await story.report(leased, ended(story, "k"))
    run = await story.store.runs.get(run.id)
    assert (run.state, run.result) == ("completed", {"enc": "json", "text": '"k"'})
    assert await story.state(root) == "running"


async def test_a_flow_called_by_a_called_flow_names_that_one_as_its_parent(story):
    leased = await story.running()
    await story.report(leased, began(story, "k"), began(story, "kk", nested="k", id="0inner02"))
    inner, innermost = await story.store.runs.get("0inner01"), await story.store.runs.get("0inner02")
    assert (innermost.parent, innermost.root) == (inner.id, leased.run.id)


async def test_what_a_called_flow_left_is_found_under_its_run_and_under_its_callers(story):
    leased = await story.running()
    lines = [protocol.Log(story.now, text, nested=nested) for text, nested in
             [("a", None), ("b", "k"), ("c", "k"), ("d", "kk"), ("e", None)]]  # fmt: skip
    await story.report(
        leased,
        began(story, "k"),
        began(story, "kk", nested="k", id="0inner02"),
        protocol.TaskBegan("t", "t", story.now, "k", nested="k"),
        *lines,
        protocol.Metric(story.now, {"loss": 1.0}, nested="kk"),
        protocol.Progress(story.now, 1, 2, task="k", nested="k"),
        protocol.Artifact("a.txt", "sha256:aa", 1, story.now, nested="k"),
    )
    runs, store = story.store.runs, story.store
    seen = {}
    for run in (leased.run.id, "0inner01", "0inner02"):
        part = await runs.part(run)
        at = (part.root, 0, 100, part.keys)
        seen[run] = (
            "".join(line.text for line in (await store.logs.page(*at)).items),
            [task.key for task in (await store.tasks.page(*at)).items],
            [point.values for point in (await store.metrics.page(*at)).items if "loss" in point.values],
            len(await store.artifacts.list(part.root, part.keys)),
        )
    assert seen[leased.run.id] == ("abcde", ["k", "kk", "t"], [{"loss": 1.0}], 1)
    assert seen["0inner01"] == ("bcd", ["kk", "t"], [{"loss": 1.0}], 1)
    part = await runs.part("0inner01")
    assert await store.tasks.tally(part.root, 0, part.keys) == {"running": 2}
    assert (await store.tasks.page(part.root, 0, 100, part.keys, "completed")).items == []
    assert seen["0inner02"] == ("d", [], [{"loss": 1.0}], 0)
    assert (await runs.get("0inner01")).progress["done"] == 1
    assert (await runs.get(leased.run.id)).progress is None


async def test_what_a_called_flow_said_in_the_frame_of_its_end_is_kept(story):
    leased = await story.running()
    said = protocol.Progress(story.now, 1, 2, task="k", nested="k")
    await story.report(leased, began(story, "k"), said, ended(story, "k"), story.result())
    assert (await story.store.runs.get("0inner01")).progress["done"] == 1


async def test_a_called_flow_waits_for_the_next_attempt_and_goes_on_in_it_as_the_same_run(story):
    leased = await story.running()
    await story.report(
        leased, began(story, "done"), ended(story, "done"), began(story, "open", id="0inner02")
    )
    await story.end(leased, "lost")
    assert (await story.state("0inner01"), await story.state("0inner02")) == ("completed", "queued")
    again = await story.running(leased.job, worker="w2")
    assert again.called == {"open": "0inner02"}
    await story.report(again, began(story, "open", id="0inner02"), ended(story, "open"))
    run = await story.store.runs.get("0inner02")
    assert (run.state, run.worker, run.attempt) == ("completed", "w2", 2)
    assert [task.key for task in await story.store.tasks.kept(leased.job.id)] == ["done", "open"]


async def test_a_failed_flow_that_a_retry_calls_again_gets_another_run(story):
    leased = await story.running(retries=1)
    await story.report(leased, began(story, "k"), ended(story, "k", "failed"), story.result("failed"))
    failed = await story.store.runs.get("0inner01")
    assert (failed.state, failed.reason, failed.message) == ("failed", "exception", "it broke")
    again = await story.running(leased.job)
    await story.report(again, began(story, "k"), ended(story, "k"))
    assert (await story.store.runs.get("0inner01")).state == "failed"
    second = (await below(story, leased.run.id))["k"]
    assert second.id != failed.id
    assert second.state == "completed"
    assert (await story.task(leased.run.id, "k")).flow_run == second.id


@pytest.mark.parametrize(
    ("ends", "state"), [("result", "cancelled"), ("crash", "crashed"), ("cancel", "cancelled")]
)
async def test_what_a_run_called_ends_with_it(story, ends, state):
    leased = await story.running(crash_retries=0)
    await story.report(leased, began(story, "k"), began(story, "kk", nested="k", id="0inner02"))
    if ends == "result":
        await story.report(leased, story.result("failed"))
    elif ends == "crash":
        await story.end(leased, "crashed")
    else:
        await story.end(leased, "stopped")
        await story.cancel(leased.run.id)
    for id in ("0inner01", "0inner02"):
        run = await story.store.runs.get(id)
        assert (run.state, run.reason) == (state, "caller_ended")
        assert leased.run.id in run.message


async def test_a_called_flow_is_cancelled_and_retried_only_with_the_run_it_goes_on_in(story):
    leased = await story.running()
    await story.report(leased, began(story, "k"))
    with pytest.raises(Conflict, match=leased.run.id):
        await story.cancel("0inner01")


async def test_hooks_of_a_called_flow_are_queued_at_its_end_and_survive_the_end_of_its_caller(story):
    leased = await story.running()
    called = began(story, "k", hooks=HOOKS, secrets=["smtp"])
    recorded = await story.report(leased, called, ended(story, "k"))
    [hook] = recorded.changes.enqueued
    assert (hook.kind, hook.run, hook.entry, hook.settings.secrets) == (
        "hook",
        leased.run.id,
        "m:inner",
        ("smtp",),
    )
    assert hook.key.endswith("hook:completed:0")
    assert hook.nested == {"key": "k", "flow": "inner", "id": "0inner01"}
    assert '"id":"0inner01"' in hook.args["text"]
    await story.report(leased, story.result())
    assert (await story.job(hook.id)).state == "queued"


async def test_hooks_of_a_called_flow_are_queued_when_its_engine_dies_for_good(story):
    leased = await story.running(crash_retries=0)
    await story.report(leased, began(story, "k", hooks=HOOKS))
    changes = await story.end(leased, "crashed")
    assert [job.name for job in changes.enqueued] == ["on_crashed: mourn"]


async def test_a_placed_flow_moves_with_its_job(story):
    leased = await story.running()
    recorded = await story.report(leased, story.call("p", flow=flow(name="far")))
    [call] = recorded.changes.enqueued
    run = await story.store.runs.get("0inner01")
    assert (run.state, run.flow, run.parent, call.nested["id"]) == ("queued", "far", leased.run.id, run.id)
    far = await story.lease(call, worker="w2")
    assert await story.state(run.id) == "starting"
    await story.report(far, protocol.Started(story.now, 1, "3.11", "host2"))
    run = await story.store.runs.get(run.id)
    assert (run.state, run.worker, run.host) == ("running", "w2", "host2")
    await story.report(far, began(story, "kk", nested="p", id="0inner02"))
    assert (await story.store.runs.get("0inner02")).parent == run.id
    await story.end(far, "lost")
    assert (await story.state(run.id), await story.state("0inner02")) == ("queued", "queued")
    far = await story.running(call, worker="w3")
    await story.report(far, began(story, "kk", nested="p", id="0inner02"), ended(story, "kk"))
    await story.report(far, story.result())
    run = await story.store.runs.get(run.id)
    assert (run.state, run.result, run.attempt) == ("completed", {"enc": "json", "text": "1"}, 2)
    assert [attempt.worker for attempt in await story.store.runs.attempts(run.id)] == ["w2", "w3"]


@pytest.mark.parametrize("handed_over", [False, True])
async def test_cancelling_a_run_cancels_the_flow_it_placed(story, handed_over):
    leased = await story.running()
    recorded = await story.report(leased, story.call("p", flow=flow(hooks=[])))
    [call] = recorded.changes.enqueued
    far = await story.running(call, worker="w2") if handed_over else None
    await story.cancel(leased.run.id)
    if far is not None:
        assert await story.state("0inner01") == "running"
        await story.report(far, story.result("cancelled", reason="cancelled"))
    run = await story.store.runs.get("0inner01")
    assert (run.state, run.reason) == ("cancelled", "caller_ended")
    assert leased.run.id in run.message


async def test_a_called_flow_that_was_cancelled_with_its_caller_names_it(story):
    """B026."""
    leased = await story.running()
    await story.report(leased, began(story, "k"))
    await story.cancel(leased.run.id)
    await story.report(leased, ended(story, "k", "cancelled", kept=False))
    run = await story.store.runs.get("0inner01")
    assert (run.state, run.reason) == ("cancelled", "caller_ended")
    assert leased.run.id in run.message


async def test_a_placed_flow_that_no_worker_is_left_for_fails_with_its_job(story):
    leased = await story.running()
    recorded = await story.report(leased, story.call("p", flow=flow()))
    [call] = recorded.changes.enqueued
    error = {"type": "ModuleNotFoundError", "module": "builtins", "message": "no torch", "traceback": ""}
    await story.store.jobs.fail(call.id, "import", "no torch", error, story.now)
    run = await story.store.runs.get("0inner01")
    assert (run.state, run.reason, run.message, run.error) == ("failed", "import", "no torch", error)
    assert run.started_at is None
    assert (await story.task(leased.run.id, "p")).state == "failed"


async def test_a_placed_call_inside_of_a_called_flow_knows_which_one(story):
    leased = await story.running()
    recorded = await story.report(leased, began(story, "k"), story.call("p", nested="k"))
    [call] = recorded.changes.enqueued
    assert call.nested == {"key": "k", "flow": "inner", "id": "0inner01"}
    assert (await story.task(leased.run.id, "p")).nested == "k"


async def test_scripts_call_flows_too_and_take_them_with_them(store):
    first = ["script", {"run": "run1", "flow": "etl", "params": {}, "at": 1.0}]
    call = {"key": "k", "name": "inner", "at": 2.0, "flow": flow(hooks=HOOKS)}
    await store.journals.record("run1", 1, [first, ["task", call]], 3.0)
    run = await store.runs.get("0inner01")
    assert (run.state, run.origin, run.parent) == ("running", "script", "run1")
    assert await store.journals.open_runs() == ["run1"]
    await store.journals.crash("run1", 4.0, "it is gone")
    assert (await store.runs.get("0inner01")).state == "crashed"
    assert await store.jobs.queued() == []


async def test_a_called_flow_is_deleted_with_the_run_that_called_it(story):
    leased = await story.running()
    await story.report(leased, began(story, "k"), ended(story, "k"), story.result())
    assert await story.store.retention.expired(story.now + 1, 10) == [leased.run.id]
    await story.store.retention.delete([leased.run.id], 1000)
    assert await story.store.runs.get("0inner01") is None
    assert (await story.store.events.page(run="0inner01")).items == []


@pytest.mark.parametrize("wrong", [{"id": "X"}, {"name": "No Name"}, {"params": 3}])
async def test_what_is_no_flow_is_refused(story, wrong):
    leased = await story.running()
    with pytest.raises(protocol.ProtocolViolation):
        await story.report(leased, began(story, "k", **wrong))
