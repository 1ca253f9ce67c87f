"""Which stem an engine is forked from, and when it is done without one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import farhand
import farhand_worker
from farhand_worker import planting, seed, stems
from farhand_worker.engine import Ended
from farhand_worker.stems import Stems

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not planting.LINUX, reason="stems are of Linux")]
KILLED = Ended(None, 9, None)


class World:
    """An interpreter, runtimes, and the processes that were begun and killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.python = directory / "python"
        self.python.write_text("1")
        self.begun: list[Any] = []
        self.killed: list[str] = []
        self.said: list[tuple[str, str]] = []
        self.stems = Stems(
            str(self.python),
            self._begin,
            lambda engine, line: self.said.append((engine.id, line)),
            lambda engine: self.killed.append(engine.id),
        )

    def runtime(self, name: str, stem: bool = True) -> Path:
        sdk = self.directory / name / "farhand" / "sdk"
        sdk.mkdir(parents=True, exist_ok=True)
        if stem:
            (sdk / "stem.py").touch()
        return self.directory / name

    def _begin(self, argv: list[str], occupant: Any) -> Any:
        engine = SimpleNamespace(id=f"s{len(self.begun)}", argv=argv, occupant=occupant, end=None)
        self.begun.append(engine)
        return engine

    def end(self, end: Ended = KILLED) -> None:
        """The stem that was begun last ends."""
        engine = self.begun[-1]
        engine.end = end
        engine.occupant.engine_ended(end)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_one_stem_serves_all_engines_of_a_runtime(world: World) -> None:
    runtime = world.runtime("r")
    assert {world.stems.of(runtime) for _ in range(3)} == {"s0"}
    assert world.begun[0].argv[:4] == [str(world.python), "-I", "-S", "-c"]
    program, entry = world.said
    assert program[0] == entry[0] == "s0"
    assert "\n" not in program[1], "it is one line"
    assert json.loads(entry[1]) == {"entry": str(runtime / "farhand" / "sdk" / "engine.py")}


async def test_a_stem_is_planted_before_there_is_a_runtime(world: World) -> None:
    world.stems.plant()
    assert len(world.said) == 1
    world.stems.plant()
    assert world.stems.of(world.runtime("r")) == "s0"
    assert len(world.said) == 2


async def test_a_planted_stem_ends_when_the_runtime_has_no_use_for_it(world: World) -> None:
    world.stems.plant()
    assert world.stems.of(world.runtime("r", stem=False)) == ""
    assert world.killed == ["s0"]


async def test_a_new_runtime_has_a_stem_of_its_own_and_the_old_one_ends(world: World) -> None:
    world.stems.of(world.runtime("old"))
    assert world.stems.of(world.runtime("new")) == "s1"
    assert world.killed == ["s0"]


async def test_an_interpreter_that_was_replaced_has_a_new_stem(world: World) -> None:
    runtime = world.runtime("r")
    world.stems.of(runtime)
    other = world.directory / "other"
    other.write_text("2")
    os.replace(other, world.python)
    assert world.stems.of(runtime) == "s1"
    assert world.killed == ["s0"]


async def test_an_old_stem_is_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = world.runtime("r")
    world.stems.of(runtime)
    monkeypatch.setattr(stems, "STEM_S", 0.0)
    assert world.stems.of(runtime) == "s1"
    assert world.killed == ["s0"]


async def test_a_stem_that_ended_is_followed_by_another_at_once(world: World) -> None:
    world.stems.of(world.runtime("r"))
    for number in range(10):
        assert len(world.begun) == number + 1
        world.stems.has_forked()
        world.end()
        await asyncio.sleep(0)


async def test_a_stem_that_takes_the_place_of_another_loads_the_runtime_at_once(world: World) -> None:
    world.stems.of(world.runtime("r"))
    world.stems.has_forked()
    world.end()
    await asyncio.sleep(0)
    entries = [line for engine, line in world.said if engine == "s1" and line.startswith("{")]
    assert len(entries) == 1
    world.end(Ended(None, 9, "warden"))
    world.stems.plant()
    assert world.said[-1] == ("s2", entries[0])


async def test_stems_that_end_with_the_warden_count_for_nothing(world: World) -> None:
    runtime = world.runtime("r")
    for number in range(10):
        assert world.stems.of(runtime) == f"s{number}"
        world.end(Ended(None, 9, "warden"))


async def test_where_stems_keep_ending_without_an_engine_there_is_none(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = world.runtime("r")
    for number in range(3):
        assert world.stems.of(runtime) == f"s{number}"
        world.end()
    assert world.stems.of(runtime) == ""
    assert "from now on engines are started without" in caplog.text


async def test_a_runtime_of_an_older_server_has_no_stem(world: World) -> None:
    assert world.stems.of(world.runtime("r", stem=False)) == ""
    assert world.begun == []


async def test_there_is_none_but_on_linux(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planting, "LINUX", False)
    assert world.stems.of(world.runtime("r")) == ""


async def test_an_interpreter_that_is_not_there_has_no_stem(world: World) -> None:
    world.python.unlink()
    assert world.stems.of(world.runtime("r")) == ""


async def test_a_stem_that_forks_nothing_is_killed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stems, "FORK_S", 0.0)
    runtime = world.runtime("r")
    world.stems.of(runtime)
    for begun in (True, False):
        engine: Any = SimpleNamespace(begun=asyncio.Event())
        if begun:
            engine.begun.set()
        world.stems.asked(engine)
        for _ in range(3):
            await asyncio.sleep(0)
        assert world.killed == ([] if begun else ["s0"])


def test_what_a_stem_loads_ahead_is_all_that_the_runtime_loads_of_the_standard_library() -> None:
    program = (
        "import sys\n"
        f"for name in {seed.MODULES.split()!r}:\n"
        "    try: __import__(name)\n"
        "    except ImportError: pass\n"
        "ahead = set(sys.modules)\n"
        "sys.path[:0] = sys.argv[1:]\n"
        "import farhand.sdk.jobs, farhand.sdk.stem\n"
        "print(*(set(sys.modules) - ahead))"
    )
    roots = [str(Path(module.__file__).parents[1]) for module in (farhand, farhand_worker)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *roots], capture_output=True, text=True, check=True
    )
    assert [name for name in done.stdout.split() if not name.startswith("farhand")] == []
