"""Archives become directories whole or not at all, and nothing is written outside of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from farhand_worker import unpacking
from farhand_worker.unpacking import remove_tree, unpack


def _archive(directory: Path, *names: str, content: bytes = b"x = 1\n") -> Path:
    path = directory / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"" if name.endswith("/") else content)
    return path


def _tree(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def test_files_and_directories_are_made(tmp_path: Path) -> None:
    archive = _archive(tmp_path, "a.py", "p/__init__.py", "p/q/b.py", "empty/", "p/late.py")
    unpack(archive, tmp_path / "home", read_only=False)
    assert _tree(tmp_path / "home") == [
        "a.py", "empty", "p", "p/__init__.py", "p/late.py", "p/q", "p/q/b.py",
    ]  # fmt: skip
    assert (tmp_path / "home" / "p" / "q" / "b.py").read_bytes() == b"x = 1\n"


def test_a_read_only_tree_says_so_and_can_be_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    unpack(_archive(tmp_path, "p/a.py"), home, read_only=True)
    modes = [path.stat().st_mode & 0o222 for path in (home, home / "p", home / "p" / "a.py")]
    assert modes == [0, 0, 0]
    remove_tree(home)
    assert not home.exists()


def test_what_is_large_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_IN_MEMORY_BYTES_MAX", 1000)
    content = bytes(range(256)) * 40
    unpack(_archive(tmp_path, "data/large", content=content), tmp_path / "home", read_only=True)
    assert (tmp_path / "home" / "data" / "large").read_bytes() == content


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out", "a//b", "./a", "a/.", ".."])
def test_a_name_that_leads_elsewhere_is_refused_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    archive = _archive(tmp_path, "good.py", name)
    with pytest.raises(zipfile.BadZipFile, match="leads out of the archive's directory"):
        unpack(archive, inside / "home", read_only=True)
    assert _tree(inside) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive.zip", "inside"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b")])
def test_a_name_that_comes_twice_is_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(FileExistsError):
        unpack(_archive(tmp_path, *names), tmp_path / "home", read_only=False)
    assert not (tmp_path / "home").exists()


def test_an_archive_that_is_cut_short_leaves_nothing(tmp_path: Path) -> None:
    archive = _archive(tmp_path, "a.py", content=bytes(range(256)) * 100)
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(zipfile.BadZipFile):
        unpack(archive, tmp_path / "home", read_only=False)
    assert [path.name for path in tmp_path.iterdir()] == ["archive.zip"]
