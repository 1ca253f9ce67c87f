"""The state directory: its lock, its instances, its sweep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farhand_worker.state import StateDirectory, StateRefused, carriers


def _opened(path: Path) -> StateDirectory:
    state = StateDirectory(path)
    state.open()
    return state


def test_it_is_made_private_and_says_who_holds_it(tmp_path: Path) -> None:
    state = _opened(tmp_path / "s")
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "s" / "lock").read_text() == f"{os.getpid()} {state.instance}\n"
    with pytest.raises(StateRefused, match=f"process id {os.getpid()} uses"):
        _opened(tmp_path / "s")
    state.close()
    _opened(tmp_path / "s").close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "real")
    with pytest.raises(StateRefused):
        _opened(tmp_path / "s")


def test_the_sweep_names_the_predecessor_and_kills_what_carries_its_engines_ids(tmp_path: Path) -> None:
    first = _opened(tmp_path / "s")
    assert first.sweep() is None
    code = "import time; print(1, flush=True); time.sleep(600)"
    environ = {**os.environ, "FARHAND_ENGINE": first.engine_id(3)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environ)
    assert process.stdout is not None
    process.stdout.readline()
    first.close()
    second = _opened(tmp_path / "s")
    assert carriers(second.identity + ".") == {process.pid}
    assert second.sweep() == first.instance
    assert process.wait() == -9
    process.stdout.close()
    second.close()
    assert second.instance != first.instance


def test_another_directorys_engines_and_an_agents_own_are_left_alone(tmp_path: Path) -> None:
    one, other = _opened(tmp_path / "a"), _opened(tmp_path / "b")
    environ = {**os.environ, "FARHAND_ENGINE": other.engine_id(1)}
    process = subprocess.Popen(["sleep", "600"], env=environ)
    one.sweep()
    other.sweep()
    assert process.poll() is None, "what an agent has begun itself is no remains of another"
    one.close()
    other.close()
    successor = _opened(tmp_path / "b")
    successor.sweep()
    assert process.wait() == -9
    successor.close()


def test_it_is_removed_where_nothing_waits_in_it(tmp_path: Path) -> None:
    state = _opened(tmp_path / "s")
    (state.scratch / "job").mkdir()
    (state.blobs / "fetched").write_text("kept for the next job, of which there is none")
    assert state.remove()
    state.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["spool", "outgoing"])
def test_it_stays_where_something_was_not_delivered(tmp_path: Path, where: str) -> None:
    state = _opened(tmp_path / "s")
    kept = tmp_path / "s" / where / "attempt" / "file"
    kept.parent.mkdir()
    kept.write_text("a report")
    assert not state.remove()
    assert (state.unsent(), kept.read_text()) == (1, "a report")
    state.close()
