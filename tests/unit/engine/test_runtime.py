"""The runtime zip: the same code gives the same bytes, and nothing else is in it."""

from __future__ import annotations

import compileall
import importlib.util
import io
import marshal
import os
import types
import zipfile
from pathlib import Path

import pytest

import farhand
import farhand_worker
from farhand.engine import runtime
from farhand_worker.runtimes import is_compiled


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """As after an installation."""
    for package in (farhand, farhand_worker):
        assert compileall.compile_dir(Path(package.__path__[0]), quiet=1)


def test_the_same_code_gives_the_same_bytes() -> None:
    assert runtime.build() == runtime.build()


def test_it_holds_the_sdk_and_nothing_that_only_agents_or_the_server_need() -> None:
    found = zipfile.ZipFile(io.BytesIO(runtime.build())).namelist()
    assert found == sorted(found)
    names = [name for name in found if not name.endswith(".pyc")]
    assert {
        "farhand/__init__.py",
        "farhand/errors.py",
        "farhand/retrying.py",
        "farhand_worker/__init__.py",
        "farhand_worker/compact.py",
        "farhand_worker/distributions.py",
        "farhand_worker/manifest.py",
        "farhand_worker/masking.py",
    } == {name for name in names if not name.startswith("farhand/sdk/")}
    assert all(name.endswith(".py") for name in names)


def test_no_entry_carries_a_date_or_a_mode_of_this_machine() -> None:
    for entry in zipfile.ZipFile(io.BytesIO(runtime.build())).infolist():
        assert entry.date_time == (1980, 1, 1, 0, 0, 0)
        assert entry.external_attr in (0, 0o600 << 16)


def test_what_is_compiled_here_needs_no_compiling_by_the_same_python(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(runtime.build())) as archive:
        archive.extractall(tmp_path)
    assert is_compiled(tmp_path)
    for source in tmp_path.rglob("*.py"):
        content = Path(importlib.util.cache_from_source(str(source), optimization="")).read_bytes()
        assert content[4:16] == b"\x01\0\0\0" + importlib.util.source_hash(source.read_bytes())
        assert isinstance(marshal.loads(content[16:]), types.CodeType)


@pytest.mark.parametrize("how", ["older", "absent", "of another Python"])
def test_what_is_not_compiled_as_it_stands_is_not_sent_compiled(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "module.py"
    source.write_text("number = 1\n")
    assert compileall.compile_file(source, quiet=1)
    monkeypatch.setattr(runtime, "_files", lambda: iter([("module.py", source)]))

    def names() -> list[str]:
        return zipfile.ZipFile(io.BytesIO(runtime.build())).namelist()

    place = Path(importlib.util.cache_from_source(str(source), optimization=""))
    assert names() == [f"__pycache__/{place.name}", "module.py"]
    if how == "older":
        os.utime(source, (1, 1))
    elif how == "absent":
        place.unlink()
    else:
        place.write_bytes(b"\0" * 4 + place.read_bytes()[4:])
    assert names() == ["module.py"]


def test_a_tree_with_one_module_that_is_not_compiled_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    assert not is_compiled(tmp_path)
    assert compileall.compile_file(tmp_path / "a.py", quiet=1)
    assert is_compiled(tmp_path)
    (tmp_path / "b.py").write_text("")
    assert not is_compiled(tmp_path)
