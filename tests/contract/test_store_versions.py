"""Versions of declared flows: kept in order, changed only from what is there, gone with their flow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farhand.errors import Changed, Conflict
from farhand.model import (
    DECLARED,
    Ask,
    Fire,
    Flow,
    JobSettings,
    Project,
    Schedule,
    Service,
    ServiceSpec,
    Version,
)
from farhand.store import Store
from farhand.store.changes import Effects

pytestmark = pytest.mark.anyio

FLOW = Flow("train", DECLARED, "m:flow", "", {}, Ask(), JobSettings(), "sha256:b", "sha256:f")


def version(etag: str, fingerprint: str = "sha256:f") -> Version:
    document: dict[str, Any] = {"nodes": [{"id": 'a "quoted"\n$()'}], "etag": etag}
    return Version("train", 0, etag, document, "sha256:b", fingerprint, created_by="ada")


async def test_each_change_is_a_version_and_the_same_again_is_none(store: Store) -> None:
    one = await store.versions.put(FLOW, version("e1"), None, 1.0)
    assert await store.versions.put(FLOW, version("e1"), None, 2.0) == one
    two = await store.versions.put(FLOW, version("e2", "sha256:g"), None, 3.0)
    assert [(v.number, v.etag, v.created_at) for v in await store.versions.list("train")] == [
        (2, "e2", 3.0),
        (1, "e1", 1.0),
    ]
    assert await store.versions.latest("train") == two
    assert await store.versions.of_code("train", "sha256:f") == one
    assert await store.versions.of_code("train", "sha256:none") is None
    assert two.document == version("e2").document
    found = await store.flows.get("train")
    assert found is not None
    assert found.present


@pytest.mark.parametrize(
    ("expected", "taken"), [(None, True), ("e1", True), ("*", True), ("e0", False), ("", False)]
)
async def test_a_change_may_name_what_it_is_based_on(store: Store, expected: str | None, taken: bool) -> None:
    await store.versions.put(FLOW, version("e1"), "", 1.0)
    if taken:
        assert (await store.versions.put(FLOW, version("e2"), expected, 2.0)).number == 2
        return
    with pytest.raises(Changed):
        await store.versions.put(FLOW, version("e2"), expected, 2.0)
    assert len(await store.versions.list("train")) == 1


@pytest.mark.parametrize("expected", ["e1", "*"])
async def test_what_is_not_there_cannot_be_what_a_change_is_based_on(store: Store, expected: str) -> None:
    with pytest.raises(Changed, match="no such flow yet"):
        await store.versions.put(FLOW, version("e1"), expected, 1.0)
    assert await store.flows.get("train") is None


async def test_a_flow_of_a_project_is_not_put_and_one_that_was_put_is_no_projects(store: Store) -> None:
    project = Project("mine", "deployed", "here", "sha256:b", 1, 1)
    own = replace(FLOW, project="mine")
    await store.projects.replace(project, [own], [], 1.0, [version("e1")])
    with pytest.raises(Conflict, match="'mine'"):
        await store.versions.put(FLOW, version("e2"), None, 2.0)
    assert [v.etag for v in await store.versions.list("train")] == ["e1"]
    await store.versions.put(replace(FLOW, name="other"), replace(version("e1"), flow="other"), None, 2.0)
    with pytest.raises(Conflict):
        await store.projects.replace(project, [replace(own, name="other")], [], 3.0)


async def test_a_flow_that_is_deleted_takes_its_versions_with_it(store: Store) -> None:
    await store.versions.put(FLOW, version("e1"), None, 1.0)
    with pytest.raises(Conflict, match="is part of project"):
        await store.retention.delete_flow("train", 2.0)
    with pytest.raises(Changed):
        await store.retention.delete_flow("train", 2.0, project=DECLARED, expected="e0")
    assert len(await store.versions.list("train")) == 1
    assert await store.retention.delete_flow("train", 2.0, project=DECLARED, expected="e1") == 0
    assert await store.versions.list("train") == []
    assert (await store.versions.put(FLOW, version("e3"), "", 3.0)).number == 1


LLM = Service("llm", DECLARED, ("train",), ServiceSpec(("serve", "{port}"), 8000), Ask(slots=0))


async def test_the_services_of_a_flow_begin_change_and_end_with_it(store: Store) -> None:
    begun, same, gone = Effects(), Effects(), Effects()
    await store.versions.put(FLOW, version("e1"), None, 1.0, [LLM], begun)
    assert len(begun.freeze().enqueued) == 1
    await store.versions.put(FLOW, version("e2"), None, 2.0, [LLM], same)
    assert not same.freeze().enqueued
    other = replace(FLOW, name="other")
    await store.versions.put(other, replace(version("o1"), flow="other"), None, 3.0)
    with pytest.raises(Conflict, match="flow 'train' has a service named 'llm' already"):
        await store.versions.put(other, replace(version("o2"), flow="other"), None, 4.0, [LLM])
    assert len(await store.versions.list("other")) == 1
    (kept,) = await store.services.list()
    assert kept.wanted
    await store.retention.delete_flow("train", 5.0, project=DECLARED, effects=gone)
    assert gone.freeze().dequeued == (kept.job,)
    assert await store.services.list() == []


async def test_a_service_that_a_newer_version_has_no_more_is_stopped(store: Store) -> None:
    await store.versions.put(FLOW, version("e1"), None, 1.0, [LLM])
    await store.versions.put(FLOW, version("e2"), None, 2.0)
    stopped = await store.services.get("llm")
    assert stopped is not None
    assert (stopped.state, stopped.present) == ("stopped", False)


async def test_the_schedules_of_a_document_are_those_of_its_newest_version_and_go_with_it(
    store: Store,
) -> None:
    def timed(flow: str, seconds: float) -> Schedule:
        spec = {"kind": "every", "seconds": seconds, "anchor": 0.0}
        return Schedule(f"{flow}.{seconds:g}", flow, DECLARED, spec, "{}")

    async def present() -> list[str]:
        return [schedule.id for schedule in await store.schedules.list() if schedule.present]

    one, other = [timed("train", 60), timed("train", 90)], [timed("other", 60)]
    await store.versions.put(FLOW, version("e1"), None, 1.0, schedules=one)
    await store.versions.put(
        replace(FLOW, name="other"), replace(version("e1"), flow="other"), None, 1.0, schedules=other
    )
    assert await present() == ["other.60", "train.60", "train.90"]
    await store.schedules.set_paused("train.90", True, 2.0)
    await store.schedules.fire(Fire("train.60", 60.0, 60.0, "failed", message="no"), None)
    await store.versions.put(FLOW, version("e2"), None, 3.0, schedules=one[1:])
    assert await present() == ["other.60", "train.90"]
    kept = await store.schedules.get("train.90")
    assert kept is not None
    assert (kept.paused, kept.since) == (True, 2.0)
    await store.retention.delete_flow("train", 4.0, project=DECLARED)
    assert [schedule.id for schedule in await store.schedules.list()] == ["other.60"]
    assert await store.schedules.fires("train.60", 10) == []
