"""A project's flows: inspected, bundled by content, kept in the store."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from farhand.blobs import Blobs
from farhand.engine import flows as flows_module
from farhand.engine.flows import Failure, Flows, Found, Inspection, bundle, fingerprint_of
from farhand.errors import NotFound
from farhand.model import Ask, JobSettings
from farhand.store import Store

pytestmark = pytest.mark.anyio

FILES = {"b.py": b"print('b')\n", "a.py": b"print('a')\n", "data/cities.csv": b"city\r\nSeattle\r\n"}


def written(root: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def found(name: str, file: str = "a.py") -> Found:
    return Found(name, f"a:{name}", "", {}, Ask(), JobSettings(), file)


def test_the_same_files_give_the_same_bundle_on_every_machine(tmp_path: Path) -> None:
    here, there = written(tmp_path / "here"), written(tmp_path / "there")
    os.utime(there / "a.py", (0, 0))
    (there / "b.py").chmod(0o755)
    (there / "unnamed.py").write_text("not asked for")
    assert bundle(here, list(FILES)) == bundle(there, list(reversed(FILES)))


def test_a_bundle_holds_the_bytes_as_they_are(tmp_path: Path) -> None:
    archive = zipfile.ZipFile(io.BytesIO(bundle(written(tmp_path), list(FILES))))
    assert {name: archive.read(name) for name in archive.namelist()} == FILES
    assert archive.namelist() == sorted(FILES)


def test_another_content_or_another_name_is_another_bundle(tmp_path: Path) -> None:
    root = written(tmp_path)
    before = bundle(root, ["a.py"])
    (root / "a.py").write_bytes(b"print('A')\n")
    assert bundle(root, ["a.py"]) != before
    (root / "c.py").write_bytes(FILES["a.py"])
    assert bundle(root, ["c.py"]) != before


def test_a_fingerprint_does_not_see_line_ends_or_order_but_everything_else(tmp_path: Path) -> None:
    unix = {"a.py": b"x = 1\ny = 2\n", "b.py": b""}
    windows = {"b.py": b"", "a.py": b"x = 1\r\ny = 2\r\n"}
    changed = {"a.py": b"x = 1\ny = 3\n", "b.py": b""}
    moved = {"a.py": b"", "b.py": b"x = 1\ny = 2\n"}
    prints = [
        fingerprint_of(written(tmp_path / str(number), files), list(files))
        for number, files in enumerate((unix, windows, changed, moved))
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    assert prints[0].startswith("sha256:")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return written(tmp_path / "project")


@pytest.fixture
def flows(store: Store, tmp_path: Path) -> Flows:
    return Flows(store, Blobs(tmp_path / "blobs"))


def reporting(monkeypatch: pytest.MonkeyPatch, **report: Any) -> None:
    inspection = Inspection(**{"flows": [], "errors": [], "files": list(FILES), **report})

    async def inspect(_: Path) -> Inspection:
        return inspection

    monkeypatch.setattr(flows_module, "inspect", inspect)


async def test_what_was_found_is_kept_with_its_version(
    flows: Flows, store: Store, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporting(monkeypatch, flows=[found("etl"), found("train")])
    await flows.load(project)
    etl = await flows.get("etl")
    assert (etl.entry, etl.project, etl.present) == ("a:etl", "default", True)
    assert etl.fingerprint == fingerprint_of(project, list(FILES))
    assert Blobs(tmp_path / "blobs").path(etl.bundle).read_bytes() == bundle(project, list(FILES))
    assert [(flow.name, flow.present) for flow in await flows.list()] == [
        ("etl", True),
        ("train", True),
        ("weather", False),
    ]


async def test_a_module_that_fails_hurts_nothing_else(
    flows: Flows, project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reporting(monkeypatch, flows=[found("etl")], errors=[Failure("b.py", "SyntaxError: no")])
    assert (await flows.load(project)).errors[0].file == "b.py"
    assert (await flows.get("etl")).present
    assert "b.py is left out: SyntaxError: no" in caplog.text


async def test_names_that_cannot_be_used_are_left_out_and_named(
    flows: Flows, project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = [found("etl"), found("etl", "b.py"), found("Two Words"), found("server")]
    reporting(monkeypatch, flows=names)
    await flows.load(project)
    assert [flow.name for flow in await flows.list() if flow.present] == ["etl"]
    assert "flow 'etl' in b.py is left out: a.py has that name" in caplog.text
    for name in ("Two Words", "server"):
        assert f"flow {name!r} in a.py is left out: the name cannot be used" in caplog.text


async def test_an_unknown_flow_is_named(flows: Flows) -> None:
    with pytest.raises(NotFound, match="there is no flow 'nope'"):
        await flows.get("nope")
