"""Schedules, their fires and the projects they come from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.errors import Conflict, NotFound
from farhand.model import Ask, Fire, Flow, Job, JobSettings, LeftOut, Project, Run, Schedule, Trouble
from farhand.store import Store

pytestmark = pytest.mark.anyio

PROJECT = Project(
    "p", "served", "here", "sha256:b", 10, 2, (Trouble("x.py", "SyntaxError: no"),), (LeftOut("big", 9),)
)
SCHEDULE = Schedule("etl.1", "etl", "p", {"kind": "every", "seconds": 60.0, "anchor": 0.0}, '{"n":1}')
FIRE = Fire("etl.1", 60.0, 61.5, "started", "1 s late", "run1", late=True, missed=3)


def a_flow(name: str = "etl", project: str = "p") -> Flow:
    return Flow(name, project, "m:f", "", {}, Ask(), JobSettings(), "sha256:b", "sha256:f", file="m.py")


def a_start(id: str = "run1", at: float = 60.0) -> tuple[Run, Job]:
    run = Run(
        id, "etl", "queued", "new", "", "{}", 61.0, idempotency_key=f"schedule:etl.1@{at}",
        schedule="etl.1", scheduled_for=at,
    )  # fmt: skip
    job = Job(
        f"{id}-job", id, "run", "queued", "etl", "m:f", {"enc": "json", "text": "{}"}, "sha256:b",
        Ask(), JobSettings(), 61.0, 61.0,
    )  # fmt: skip
    return run, job


async def test_a_project_is_kept_with_all_that_it_brings(store: Store) -> None:
    await store.projects.replace(PROJECT, [a_flow()], [SCHEDULE], 5.0)
    assert await store.projects.list() == [replace(PROJECT, updated_at=5.0)]
    assert await store.flows.get("etl") == replace(a_flow(), updated_at=5.0)
    kept = replace(SCHEDULE, since=5.0, created_at=5.0, updated_at=5.0)
    assert await store.schedules.list() == [kept]
    assert await store.schedules.get("etl.1") == kept
    assert await store.schedules.get("nope") is None
    assert await store.projects.get("nope") is None
    await store.projects.note(replace(PROJECT, errors=()))
    assert (await store.projects.list())[0].errors == ()


async def test_a_fire_is_stored_once_with_the_run_it_starts(store: Store) -> None:
    await store.projects.replace(PROJECT, [a_flow()], [SCHEDULE], 5.0)
    started = await store.schedules.fire(FIRE, a_start())
    assert started is not None
    assert started[0].scheduled_for == 60.0
    assert await store.schedules.fire(FIRE, a_start("run2")) is None
    assert [run.id for run in (await store.runs.page(10)).items] == ["run1"]
    assert await store.schedules.fires("etl.1", 10) == [FIRE]
    failed = Fire("etl.1", 120.0, 120.0, "failed", "no")
    assert await store.schedules.fire(failed, None) is None
    assert await store.schedules.fires("etl.1", 1) == [failed]
    assert await store.schedules.last_fires() == {"etl.1": failed}
    schedule = await store.schedules.get("etl.1")
    assert schedule is not None
    assert schedule.since == 120.0


async def test_a_fire_that_is_to_skip_what_overlaps_starts_nothing_while_another_of_it_goes_on(
    store: Store,
) -> None:
    """B050, B051: it is decided in the transaction that would have queued the run."""
    await store.projects.replace(PROJECT, [a_flow()], [SCHEDULE], 5.0)
    assert await store.schedules.fire(FIRE, a_start(), skip=True) is not None
    of_another, job = a_start("run9")
    await store.runs.create(replace(of_another, schedule="etl.2", idempotency_key=None), job)
    second = replace(FIRE, at=120.0, message="", run="run2")
    assert await store.schedules.fire(second, a_start("run2", 120.0), skip=True) is None
    (fire, _) = await store.schedules.fires("etl.1", 10)
    assert (fire.outcome, fire.run, fire.message) == ("skipped", None, "run run1 is still queued")
    late = replace(FIRE, at=150.0, run="run3")
    assert await store.schedules.fire(late, a_start("run3", 150.0), skip=True) is None
    assert (await store.schedules.fires("etl.1", 1))[0].message == "1 s late; run run1 is still queued"
    await store.runs.cancel("run1", 170.0)
    third = replace(FIRE, at=180.0, run="run4")
    assert await store.schedules.fire(third, a_start("run4", 180.0), skip=True) is not None


async def test_a_schedule_that_stays_goes_on_and_one_that_returns_begins_anew(store: Store) -> None:
    await store.projects.replace(PROJECT, [a_flow()], [SCHEDULE], 5.0)
    assert await store.schedules.set_paused("etl.1", True, 6.0)
    assert not await store.schedules.set_paused("etl.1", True, 7.0)
    await store.projects.replace(PROJECT, [a_flow()], [SCHEDULE], 8.0)
    (schedule,) = await store.schedules.list()
    assert (schedule.paused, schedule.since, schedule.created_at) == (True, 6.0, 5.0)
    await store.projects.replace(PROJECT, [], [], 9.0)
    assert [found.present for found in await store.schedules.list()] == [False]
    await store.projects.replace(PROJECT, [a_flow()], [SCHEDULE], 10.0)
    (schedule,) = await store.schedules.list()
    assert (schedule.present, schedule.since) == (True, 10.0)
    with pytest.raises(NotFound):
        await store.schedules.set_paused("nope", True, 11.0)


async def test_projects_keep_out_of_each_other(store: Store) -> None:
    await store.projects.replace(PROJECT, [a_flow()], [SCHEDULE], 5.0)
    deployed = replace(PROJECT, name="q", origin="deployed")
    with pytest.raises(Conflict, match="projects 'p' and 'q' both have a flow named 'etl'"):
        await store.projects.replace(deployed, [a_flow(project="q")], [], 6.0)
    with pytest.raises(Conflict, match="'p' is served from here"):
        await store.projects.replace(replace(PROJECT, origin="deployed"), [], [], 7.0)
    assert [project.name for project in await store.projects.list()] == ["p"]
    await store.projects.replace(deployed, [a_flow("fit", "q")], [], 8.0)
    await store.projects.replace(replace(PROJECT, name="r"), [], [], 9.0)
    assert [project.name for project in await store.projects.list()] == ["q", "r"]
    assert {flow.name: flow.present for flow in await store.flows.list()} == {"etl": False, "fit": True}
