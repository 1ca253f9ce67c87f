"""What a server takes of an offer, and what it keeps of the past."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from farhand.blobs import Blobs, digest_of
from farhand.engine.packing import Found, Offer, Packed, Timed
from farhand.engine.projects import Projects
from farhand.engine.runs import Runs
from farhand.engine.scheduler import Scheduler
from farhand.errors import Conflict, NotFound, Usage
from farhand.model import NAME_PATTERN, Ask, JobSettings, Trouble
from farhand_worker.manifest import write_manifest
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio

ROOT = Path("somewhere")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
MANIFEST = write_manifest({"a.py": "0" * 64})
FINGERPRINT = digest_of(MANIFEST)
EVERY = Timed({"kind": "every", "seconds": 60.0, "anchor": 0.0})


def found(name: str, file: str = "a.py", *schedules: Timed) -> Found:
    return Found(name, f"a:{name}", "", SCHEMA, Ask(), JobSettings(), file, (), schedules, FINGERPRINT)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


@pytest.fixture
def projects(world: World, blobs: Blobs) -> Projects:
    runs = Runs(world.store, world.queue, world.fleet, world.consequences)
    return Projects(
        world.store, blobs, Scheduler(world.store, runs, world.consequences, world.bus), world.bus
    )


def a_zip(text: str = "x") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.py", text)
    return buffer.getvalue()


def packed(blobs: Blobs, *flows: Found, name: str = "default", text: str = "x", errors: str = "") -> Packed:
    content = a_zip(text)
    blobs.put_bytes(MANIFEST)
    troubles = [Trouble(file, "SyntaxError: no") for file in errors.split()]
    offer = Offer(blobs.put_bytes(content), len(content), 1, list(flows), troubles)
    return Packed(name, offer, content, {}, {})


async def present(world: World) -> dict[str, bool]:
    return {flow.name: flow.present for flow in await world.store.flows.list()}


async def test_what_was_found_is_kept_with_its_version(
    projects: Projects, world: World, blobs: Blobs
) -> None:
    offer = packed(blobs, found("etl", "a.py", EVERY), found("train"))
    await projects.serve(ROOT, offer)
    etl = await world.store.flows.get("etl")
    assert etl is not None
    assert (etl.entry, etl.project, etl.present, etl.file) == ("a:etl", "default", True, "a.py")
    assert (etl.bundle, etl.fingerprint) == (offer.offer.bundle, FINGERPRINT)
    assert await present(world) == {"etl": True, "train": True, "weather": False}
    (schedule,) = await world.store.schedules.list()
    assert (schedule.flow, schedule.spec, schedule.params) == ("etl", EVERY.spec, "{}")
    (project,) = await projects.list()
    assert (project.name, project.origin, project.place, project.files) == (
        "default",
        "served",
        "somewhere",
        1,
    )


async def test_what_cannot_be_offered_is_left_out_and_named(
    projects: Projects, world: World, blobs: Blobs, caplog: pytest.LogCaptureFixture
) -> None:
    wrong_time = Timed({"kind": "cron", "expr": "0 6 * * *", "tz": "EST"})
    wrong_params = Timed(EVERY.spec, {"n": "many"})
    offer = packed(
        blobs,
        found("etl"),
        found("etl", "b.py"),
        found("Two Words"),
        found("server"),
        found("late", "c.py", wrong_time),
        found("odd", "d.py", wrong_params),
        errors="e.py",
    )
    await projects.serve(ROOT, offer)
    assert [name for name, there in (await present(world)).items() if there] == ["etl"]
    said = {f"{trouble.file}: {trouble.error}" for trouble in (await projects.get("default")).errors}
    assert "b.py: flow 'etl': a.py has that name; rename one of them" in said
    assert {
        f"a.py: flow 'Two Words': the name cannot be used; it must match {NAME_PATTERN}",
        f"a.py: flow 'server': the name cannot be used; it must match {NAME_PATTERN}",
    } <= said
    assert any(text.startswith("c.py: flow 'late': its schedule cannot be used: tz='EST'") for text in said)
    assert any(text.startswith("d.py: flow 'odd': its schedule cannot be used: n") for text in said)
    assert "e.py is left out: SyntaxError: no" in caplog.text


async def test_flows_of_a_module_that_breaks_stay_as_they_were(
    projects: Projects, world: World, blobs: Blobs
) -> None:
    await projects.serve(ROOT, packed(blobs, found("etl", "a.py", EVERY), found("train", "b.py")))
    before = await world.store.flows.get("etl")
    await projects.serve(ROOT, packed(blobs, found("train", "b.py"), text="y", errors="a.py"))
    after = await world.store.flows.get("etl")
    assert before is not None
    assert after is not None
    assert (after.present, after.bundle) == (True, before.bundle)
    assert [schedule.present for schedule in await world.store.schedules.list()] == [True]


async def test_flows_that_are_gone_are_still_known(projects: Projects, world: World, blobs: Blobs) -> None:
    await projects.serve(ROOT, packed(blobs, found("etl", "a.py", EVERY)))
    await projects.serve(ROOT, packed(blobs))
    assert (await present(world))["etl"] is False
    assert [schedule.present for schedule in await world.store.schedules.list()] == [False]


async def test_another_directory_takes_the_place_of_the_one_served_before(
    projects: Projects, world: World, blobs: Blobs
) -> None:
    await projects.serve(ROOT, packed(blobs, found("etl"), name="old"))
    await projects.serve(ROOT, packed(blobs, found("train"), name="new"))
    assert [project.name for project in await projects.list()] == ["new"]
    assert await present(world) == {"etl": False, "train": True, "weather": True}


async def test_a_project_is_deployed_whole_or_not_at_all(
    projects: Projects, world: World, blobs: Blobs
) -> None:
    offer = packed(blobs, found("etl"), found("etl", "b.py")).offer
    with pytest.raises(Usage, match=r"b\.py: flow 'etl': a.py has that name"):
        await projects.deploy("team", offer, "ci")
    assert "etl" not in await present(world)
    project = await projects.deploy("team", replace(offer, flows=[found("etl", "a.py", EVERY)]), "ci")
    assert (project.origin, project.place) == ("deployed", "ci")
    assert (await present(world))["etl"]


async def test_a_flow_name_of_another_project_is_refused_naming_both(
    projects: Projects, world: World, blobs: Blobs
) -> None:
    await projects.deploy("one", packed(blobs, found("etl")).offer, "ci")
    with pytest.raises(Conflict, match="flow 'etl': projects 'one' and 'two' both have one"):
        await projects.deploy("two", packed(blobs, found("etl")).offer, "ci")
    await projects.serve(ROOT, packed(blobs, found("etl"), found("train"), name="three"))
    (trouble,) = (await projects.get("three")).errors
    assert "projects 'one' and 'three' both" in trouble.error
    assert (await present(world))["train"]


async def test_a_served_project_is_not_deployed_over(projects: Projects, blobs: Blobs) -> None:
    await projects.serve(ROOT, packed(blobs, found("etl")))
    with pytest.raises(Conflict, match="'default' is served from somewhere"):
        await projects.deploy("default", packed(blobs, found("etl")).offer, "ci")


async def test_a_bundle_has_to_be_there_and_be_one(projects: Projects, blobs: Blobs) -> None:
    offer = packed(blobs, found("etl")).offer
    with pytest.raises(Usage, match="is not here; upload it first"):
        await projects.deploy("team", replace(offer, bundle=f"sha256:{'0' * 64}"), "ci")
    lacking = replace(found("etl"), fingerprint=f"sha256:{'0' * 64}")
    with pytest.raises(Usage, match=r"manifest .* of flow 'etl' is not here"):
        await projects.deploy("team", replace(offer, flows=[lacking]), "ci")
    with pytest.raises(Usage, match="is not a zip file"):
        await projects.deploy("team", replace(offer, bundle=blobs.put_bytes(b"no zip")), "ci")
    with pytest.raises(Usage, match="a project's name matches"):
        await projects.deploy("Two Words", offer, "ci")


async def test_an_unknown_project_is_named(projects: Projects) -> None:
    with pytest.raises(NotFound, match="there is no project 'nope'"):
        await projects.get("nope")
