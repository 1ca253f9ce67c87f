"""Flows, workers, tokens and the event log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.errors import Conflict
from farhand.model import Ask, Flow, Invitation, JobSettings, Token, Worker

pytestmark = pytest.mark.anyio


def a_flow(name: str, **fields: object) -> Flow:
    settings = JobSettings(retries=1, timeout_s=2.5)
    flow = Flow(
        name, "p", f"m:{name}", "Does it.", {"type": "object"}, Ask(("gpu",)), settings, "sha256:1", "f"
    )
    return replace(flow, **fields)


async def test_flows_are_replaced_project_by_project(store):
    await store.flows.replace("p", [a_flow("a"), a_flow("b")], 1.0)
    await store.flows.replace("q", [a_flow("c")], 2.0)
    await store.flows.replace("p", [a_flow("b", bundle="sha256:2")], 3.0)
    found = {flow.name: flow for flow in await store.flows.list()}
    assert [found[name].present for name in "abc"] == [False, True, True]
    assert found["b"] == a_flow("b", bundle="sha256:2", updated_at=3.0)
    assert found["c"].project == "q"
    assert await store.flows.get("b") == found["b"]
    assert await store.flows.get("none") is None


async def test_a_flow_that_comes_back_is_present_again(store):
    for flows in ([a_flow("a")], [], [a_flow("a")]):
        await store.flows.replace("p", flows, 1.0)
    flow = await store.flows.get("a")
    assert flow is not None
    assert flow.present


async def test_two_projects_cannot_have_one_flow_name(store):
    await store.flows.replace("p", [a_flow("a")], 1.0)
    with pytest.raises(Conflict, match="'a'"):
        await store.flows.replace("q", [a_flow("b"), a_flow("a")], 2.0)
    assert [flow.name for flow in await store.flows.list()] == ["a"]
    await store.flows.replace("p", [], 3.0)
    await store.flows.replace("q", [a_flow("a")], 4.0)


async def test_a_worker_is_one_row_however_often_it_attaches(store):
    worker = Worker(
        "w1", "online", ("gpu", "zone=eu"), 2, "i1", "h", "3.11", "0.1.0", "b", "10.0.0.1", 1.0, 1.0
    )
    await store.workers.attach(worker)
    again = replace(worker, instance="i2", attached_at=2.0)
    await store.workers.attach(again)
    assert await store.workers.list() == [again]
    assert await store.workers.get("w1") == again
    assert await store.workers.get("w2") is None


async def test_a_change_of_a_workers_state_is_seen_once(store):
    worker = Worker("w1", "online", (), 2, "i1", "h", "3.11", "0.1.0")
    await store.workers.attach(worker)
    assert await store.workers.set_state("w1", "lost", 5.0)
    assert not await store.workers.set_state("w1", "lost", 6.0)
    assert not await store.workers.set_state("w2", "lost", 6.0)
    assert await store.workers.get("w1") == replace(worker, state="lost", last_seen_at=5.0)


async def test_a_token_is_revoked_once(store):
    token = Token("t1", "laptop", "worker", ("gpu",), 1.0, 100.0)
    await store.tokens.add(token)
    with pytest.raises(Conflict):
        await store.tokens.add(token)
    assert await store.tokens.get("t1") == token
    await store.tokens.used("t1", 2.0)
    assert await store.tokens.revoke("t1", 3.0)
    assert not await store.tokens.revoke("t1", 4.0)
    assert not await store.tokens.revoke("none", 4.0)
    assert await store.tokens.list() == [replace(token, last_used_at=2.0, revoked_at=3.0)]
    assert await store.tokens.get("none") is None


async def test_the_event_log_is_paged_in_order(store):
    for number in range(1, 6):
        run = "r1" if number % 2 else None
        await store.events.add(float(number), "worker.attached", f"m{number}", run, "w1", {"n": number})
    page = await store.events.page(limit=2)
    assert [event.message for event in page.items] == ["m1", "m2"]
    page = await store.events.page(int(page.next or 0), 10)
    assert [event.message for event in page.items] == ["m3", "m4", "m5"]
    assert page.next is None
    assert [event.details for event in (await store.events.page(run="r1")).items] == [
        {"n": 1}, {"n": 3}, {"n": 5},
    ]  # fmt: skip


async def test_an_invitation_buys_one_token_and_nothing_after_its_time(store):
    invitation = Invitation("i1", "hash", "box", ("gpu",), 60.0, 1.0, 100.0)
    await store.invitations.add(invitation)
    token = Token("t1", "box", "worker", ("gpu",), 2.0, 62.0)
    assert not await store.invitations.use("i1", token, 100.0, "10.0.0.1")
    assert await store.invitations.use("i1", token, 2.0, "10.0.0.1")
    assert not await store.invitations.use("i1", replace(token, jti="t2"), 3.0, "10.0.0.2")
    assert await store.tokens.list() == [token]
    used = replace(invitation, used_at=2.0, jti="t1", address="10.0.0.1")
    assert await store.invitations.find("hash") == used
    await store.invitations.add(replace(invitation, id="i2", code_hash="other", issued_at=1e9))
    assert await store.invitations.find("hash") is None


async def test_a_sign_in_that_was_ended_is_remembered_until_its_time_is_over(store):
    await store.sign_ins.end("s1", 100.0, 1.0)
    await store.sign_ins.end("s1", 100.0, 2.0)
    assert await store.sign_ins.has_ended("s1")
    assert not await store.sign_ins.has_ended("s2")
    await store.sign_ins.end("s2", 300.0, 100.0)
    assert not await store.sign_ins.has_ended("s1")


async def test_what_people_ordered_outlives_a_worker_that_attaches_anew(store):
    worker = Worker("w1", "online", (), 2, "i1", "h", "3.11", "0.1.0", reported={"called": "box"})
    assert await store.workers.attach(worker) == (worker, True)
    assert await store.workers.order_drain("w1", "anna")
    assert not await store.workers.order_drain("w1", "bert")
    await store.workers.set_slots("w1", 5)
    as_ordered = replace(worker, drained_by="anna", slots=5)
    assert await store.workers.attach(worker) == (as_ordered, False)
    anew = replace(worker, instance="i2")
    assert await store.workers.attach(anew) == (replace(anew, drained_by="anna"), True)
    assert await store.workers.order_drain("w1", "")
    assert not await store.workers.order_drain("w1", "")
    assert await store.workers.forget("w1")
    assert not await store.workers.forget("w1")


async def test_the_latest_events_are_found_by_worker_run_and_kind(store):
    for at, kind, name in ((1.0, "worker.attached", "a"), (2.0, "worker.lost", "a"), (3.0, "workers", "b")):
        await store.events.add(at, kind, "", worker=name)
    page = await store.events.latest(limit=1, worker="a")
    assert [event.kind for event in page.items] == ["worker.lost"]
    page = await store.events.latest(before=int(page.next), worker="a")
    assert [event.kind for event in page.items] == ["worker.attached"]
    assert page.next is None
    assert [event.at for event in (await store.events.latest(kind="worker.")).items] == [2.0, 1.0]
    assert [event.at for event in (await store.events.latest(kind="workers")).items] == [3.0]
    assert (await store.events.latest(run="r1")).items == []
