"""The warden and the stem that are started before the agent is loaded, and that nothing is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import farhand_worker.__main__ as program
from farhand_worker.address import parse
from farhand_worker.launch import FIRST, Launched, launch
from farhand_worker.options import Options
from farhand_worker.runtimes import Runtimes
from farhand_worker.state import StateDirectory, carriers
from farhand_worker.trees import LINUX
from tests.harness.waiting import eventually

pytestmark = pytest.mark.skipif(not LINUX, reason="stems are of Linux")

DIES = """
import json, os, signal, sys
from pathlib import Path
from tests.unit.worker.test_launch import launched_in, stem_of
launched, _ = launched_in(Path(sys.argv[1]))
print(launched.warden.pid, stem_of(launched), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def launched_in(path: Path) -> tuple[Launched, StateDirectory]:
    state = StateDirectory(path)
    state.open()
    address = parse("http://127.0.0.1:1", False)
    options = Options(lambda: address, "token", "name", path, python=sys.executable)
    return launch(options, state), state


def stem_of(launched: Launched) -> int:
    """The stem's process id, as the warden tells it."""
    told = json.loads(launched.warden.socket.recv(65536).split(b"\n")[0])
    assert told["is"] == "spawned"
    return told["pid"]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def test_warden_and_stem_are_there_before_the_agent_and_end_when_it_never_comes(tmp_path: Path) -> None:
    launched, state = launched_in(tmp_path / "state")
    stem = stem_of(launched)
    try:
        eventually(lambda: stem in carriers(state.engine_id(FIRST)))
    finally:
        launched.close()
        state.close()
    assert gone(stem)
    assert gone(launched.warden.pid)
    launched.close()


def test_the_stem_loads_the_runtime_of_last_time_before_there_is_an_agent(tmp_path: Path) -> None:
    path, loaded = tmp_path / "state", tmp_path / "loaded"
    runtimes = Runtimes(path / "runtime", sys.executable)
    digests = [f"sha256:{name * 64}" for name in "ab"]
    for digest in digests:
        sdk = runtimes.home(digest) / "farhand" / "sdk"
        sdk.mkdir(parents=True)
        (sdk / "stem.py").touch()
        (sdk / "engine.py").write_text(f"open({str(loaded)!r}, 'w').close()")
    runtimes.mark(runtimes.home(digests[0])).touch()
    launched, state = launched_in(path)
    try:
        eventually(loaded.exists)
        for _ in range(2):  # what comes to be known later is for the agent to say
            stem = launched.take()
            assert stem is not None
            assert stem.runtime == runtimes.home(digests[0])
            launched._has_runtime(runtimes.home(digests[1]))
    finally:
        launched.close()
        state.close()


def test_they_end_when_their_process_is_killed_before_there_is_an_agent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path / "state")], capture_output=True, text=True, cwd=os.getcwd()
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    for pid in map(int, done.stdout.split()):
        eventually(lambda pid=pid: gone(pid))


def test_the_sweep_of_what_was_left_spares_what_was_launched(tmp_path: Path) -> None:
    launched, state = launched_in(tmp_path / "state")
    stem = stem_of(launched)
    try:
        eventually(lambda: stem in carriers(state.engine_id(FIRST)))
        state.sweep()
        assert not gone(stem)
    finally:
        launched.close()
        state.close()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["install"], 2),
        (["--url", "http://farhand.example", "--token", "t"], 2),
        (["--url", "http://127.0.0.1:1", "--token", "two words"], 2),
    ],
)
def test_nothing_is_launched_for_what_is_no_worker(
    arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "launch", lambda *_: pytest.fail("launched"))
    try:
        found = program.main(arguments)
    except SystemExit as error:
        found = error.code or 0
    assert found == code


def test_nothing_is_launched_beside_another_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "launch", lambda *_: pytest.fail("launched"))
    other = StateDirectory(tmp_path / "state")
    other.open()
    try:
        given = ["--url", "http://127.0.0.1:1", "--token", "t", "--state-dir", str(tmp_path / "state")]
        assert program.main(given) == 3
    finally:
        other.close()


def test_the_agents_own_modules_are_loaded_after_the_launch() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import farhand_worker.__main__, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    late = {"asyncio", "ssl", "http.client", "websockets", "farhand_worker.agent", "farhand_worker.protocol"}
    assert late.isdisjoint(loaded)
