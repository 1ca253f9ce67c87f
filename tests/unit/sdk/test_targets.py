"""A local target is there whole or not at all, whoever dies while it is written."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from farhand import LocalTarget, Target, flow
from farhand.errors import InvalidParameters
from farhand.sdk.hashing import canonical
from farhand.sdk.wholefiles import begun, clear

WRITER = """
import sys
from farhand import LocalTarget
file = LocalTarget(sys.argv[1]).open("w")
file.write("half")
file.flush()
print("wrote", flush=True)
sys.stdin.read()
"""


def listed(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_was_written_appears_when_it_is_closed_and_no_sooner(tmp_path: Path) -> None:
    target = LocalTarget(tmp_path / "a" / "b.txt")
    with target.open("w") as file:
        file.write("whole ä\n")
        file.flush()
        assert not target.exists()
    with target.open() as file:
        assert file.read() == "whole ä\n"
    assert listed(tmp_path / "a") == ["b.txt"]
    target.remove()
    target.remove()
    assert not target.exists()


def test_bytes_and_other_encodings_are_written_as_told(tmp_path: Path) -> None:
    target = LocalTarget(tmp_path / "bytes")
    with target.open("wb") as file:
        file.write(b"\0\xff")
    assert Path(target).read_bytes() == b"\0\xff"
    with target.open("w", encoding="latin-1", newline="\r\n") as file:
        file.write("ä\n")
    assert Path(target).read_bytes() == b"\xe4\r\n"


@pytest.mark.parametrize("mode", ["w", "wb"])
def test_an_exception_leaves_the_target_as_it_was(tmp_path: Path, mode: str) -> None:
    target = LocalTarget(tmp_path / "kept")
    Path(target).write_text("before")
    with pytest.raises(TypeError), target.open(mode) as file:
        file.write(b"after" if mode == "w" else "after")
    assert file.closed
    assert Path(target).read_text() == "before"
    assert listed(tmp_path) == ["kept"]


def test_a_file_that_is_never_closed_is_not_published(tmp_path: Path) -> None:
    file = LocalTarget(tmp_path / "lost").open("w")
    file.write("half")
    del file
    assert listed(tmp_path) == []


def test_a_killed_writer_leaves_nothing_that_the_next_one_does_not_remove(tmp_path: Path) -> None:
    target = LocalTarget(tmp_path / "result")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, target.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "wrote\n"
        with target.open("w") as file:  # beside a living one, whose file stays
            file.write("first")
        assert len(listed(tmp_path)) == 2
        writer.kill()
        writer.wait()
    assert Path(target).read_text() == "first"
    with target.open("w") as file:
        file.write("second")
    assert listed(tmp_path) == ["result"]


@pytest.mark.parametrize("mode", ["w", "wb"])
@pytest.mark.parametrize("end", ["raise SystemExit(0)", "file.close(); os._exit(0)"])
def test_a_forked_process_leaves_it_to_the_one_that_opened_it(tmp_path: Path, mode: str, end: str) -> None:
    script = f"""
import os
from farhand import LocalTarget
with LocalTarget({str(tmp_path / "a")!r}).open({mode!r}) as file:
    file.write({"once" if mode == "w" else b"once"!r})
    if os.fork() == 0:
        {end}
    assert os.wait()[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a", b"once")]


def test_many_writers_at_once_leave_one_whole_file_and_no_reader_sees_half_of_one(tmp_path: Path) -> None:
    """B131: callers of one key who keep what they made in one place disturb nobody."""
    target, texts = LocalTarget(tmp_path / "one"), [str(number) * 50_000 for number in range(8)]

    def write(text: str) -> None:
        for _ in range(10):
            with target.open("w") as file:
                file.write(text)
            with target.open() as file:
                assert file.read() in texts

    with ThreadPoolExecutor(len(texts)) as threads:
        list(threads.map(write, texts))
    assert Path(target).read_text() in texts
    assert listed(tmp_path) == ["one"]


def test_a_file_taken_for_a_dead_ones_before_its_lock_is_begun_again(tmp_path: Path) -> None:
    fd, path = begun(str(tmp_path / ".x.writing-"))
    clear(str(tmp_path), ".x.writing-")
    assert os.path.exists(path)
    os.close(fd)
    clear(str(tmp_path), ".x.writing-")
    assert listed(tmp_path) == []


def test_a_link_goes_on_leading_to_the_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with LocalTarget(tmp_path / "link").open("w") as file:
        file.write("text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"


@pytest.mark.parametrize("mode", ["a", "r+", "x", "w+b", ""])
def test_another_mode_is_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ValueError, match="written whole"):
        LocalTarget(tmp_path / "file").open(mode)


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(ValueError, match="takes the path of a file"):
        LocalTarget(path)


def test_a_directory_is_no_place_for_it(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        LocalTarget(tmp_path).open("w")
    assert listed(tmp_path) == []


@pytest.mark.parametrize("name", ["n" * 255, "\N{SNOWMAN}" * 85])
def test_a_name_of_255_bytes_is_written_too(tmp_path: Path, name: str) -> None:
    with LocalTarget(tmp_path / name).open("w") as file:
        file.write("text")
    assert listed(tmp_path) == [name]


def test_equal_paths_are_equal_targets_everywhere() -> None:
    target = LocalTarget("/data/a")
    assert target == LocalTarget(Path("/data/a")) == pickle.loads(pickle.dumps(target))
    assert len({target, LocalTarget("/data/a"), LocalTarget("/data/b")}) == 2
    assert canonical(target, lambda _: None) == canonical(LocalTarget("/data/a"), lambda _: None)
    assert canonical(target, lambda _: None) != canonical(LocalTarget("/data/b"), lambda _: None)
    assert repr(target) == "LocalTarget('/data/a')"


def test_a_parameter_takes_its_path_as_text(tmp_path: Path) -> None:
    @flow
    def size(of: LocalTarget) -> int:
        with of.open("rb") as file:
            return len(file.read())

    (tmp_path / "file").write_text("text")
    assert size(str(tmp_path / "file")) == size(LocalTarget(tmp_path / "file")) == 4  # type: ignore[arg-type]
    with pytest.raises(InvalidParameters, match="of: must be a path"):
        size(3)  # type: ignore[arg-type]


def test_a_target_of_ones_own_says_whether_it_exists() -> None:
    class Row(Target):
        pass

    with pytest.raises(NotImplementedError, match="Row does not say whether it exists"):
        Row().exists()
