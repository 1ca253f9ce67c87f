"""Engines forked from a stem: a real warden, real stems, and every way in which either may end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farhand.sdk import stem as stem_module
from farhand_worker import trees
from farhand_worker.alarm import CLOCK
from farhand_worker.warden_process import ARGUMENTS
from tests.harness.processes import alive, send
from tests.harness.waiting import eventually

pytestmark = pytest.mark.skipif(not trees.LINUX, reason="stems are of Linux")

STEM = f"""
import sys
sys.path.insert(0, {str(Path(stem_module.__file__).parent)!r})
from stem import Stem
sys.path.pop(0)
import random
Stem(3).serve()
import json, os, socket
channel = socket.socket(fileno=3)
fds = sorted(int(name) for name in os.listdir("/proc/self/fd"))
about = {{"pid": os.getpid(), "ppid": os.getppid(), "sid": os.getsid(0), "cwd": os.getcwd(), "fds": fds,
         "env": dict(os.environ), "random": random.random(), "threads": len(os.listdir("/proc/self/task"))}}
channel.send(json.dumps(about).encode())
order = channel.recv(10_000)
print("said", flush=True)
exec(order.decode())
"""
"""Forks engines that tell about themselves and do what they are told."""

PLAIN = """
import json, os, socket
fds = sorted(int(name) for name in os.listdir("/proc/self/fd"))
channel = socket.socket(fileno=3)
channel.send(json.dumps({"plain": True, "fds": fds}).encode())
exec(channel.recv(10_000).decode())
"""
"""Is started without a stem."""


class Link:
    """A warden's agent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.control, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, *ARGUMENTS, "--fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self.control.settimeout(20)
        self.channels: dict[str, socket.socket] = {}
        self.output = directory / "output"
        self._told: list[dict[str, Any]] = []
        self._text = b""
        self.deadlines(3600)

    def order(self, do: str, *fds: int, **what: Any) -> None:
        socket.send_fds(self.control, [json.dumps({"do": do, **what}).encode() + b"\n"], list(fds))
        for fd in fds:
            os.close(fd)

    def deadlines(self, in_s: float) -> None:
        at = time.clock_gettime(CLOCK) + in_s
        self.order("deadlines", ordinary=at, strict=at, n=1)

    def stem(self, name: str, program: str = STEM, **env: str) -> int:
        argv = [sys.executable, "-I", "-S", "-c", program]
        env = {"KEPT": "1", "CHANGED": "1", "GONE": "1", **env}
        self.order("stem", self._append(), engine=name, argv=argv, env=env, cwd="/")
        return self.told("spawned", name)["pid"]

    def spawn(self, name: str, stem: str, strict: bool = False) -> socket.socket:
        near, far = socket.socketpair()
        near.settimeout(20)
        env = {"KEPT": "1", "CHANGED": "2", "NEW": "1"}
        argv = [sys.executable, "-I", "-S", "-c", PLAIN]
        cwd = str(self.directory)
        fds = far.detach(), self._append()
        self.order("spawn", *fds, engine=name, argv=argv, env=env, cwd=cwd, strict=strict, stem=stem)
        self.channels[name] = near
        return near

    def _append(self) -> int:
        return os.open(self.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def about(self, name: str) -> dict[str, Any]:
        return json.loads(self.channels[name].recv(100_000))

    def told(self, what: str, engine: str) -> dict[str, Any]:
        """What the warden tells of an engine."""
        while True:
            for message in self._told:
                if (message["is"], message.get("engine")) == (what, engine):
                    return message
            text = self.control.recv(65536)
            assert text, "the warden has ended"
            self._text += text
            *lines, self._text = self._text.split(b"\n")
            self._told += [json.loads(line) for line in lines]

    def close(self) -> None:
        self.control.close()
        self.process.wait(20)
        for channel in self.channels.values():
            channel.close()


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Link]:
    link = Link(tmp_path)
    yield link
    link.close()


def _gone(*pids: int) -> None:
    eventually(lambda: not any(alive(pid) for pid in pids), what=f"the end of {pids}")


def test_a_forked_engine_is_the_wardens_child_with_a_session_and_an_environment_of_its_own(
    link: Link,
) -> None:
    stem = link.stem("s")
    link.spawn("e", "s")
    told, about = link.told("spawned", "e"), link.about("e")
    assert told["forked"]
    assert about["pid"] == about["sid"] == told["pid"]
    assert about["ppid"] == link.process.pid
    assert about["cwd"] == str(link.directory)
    assert about["fds"][:-1] == [0, 1, 2, 3], "and the one that lists them"
    assert about["threads"] == 1
    names = {"KEPT": "1", "CHANGED": "2", "NEW": "1"}
    assert {name: about["env"].get(name) for name in (*names, "GONE")} == {**names, "GONE": None}
    assert not trees.children_of(stem), "who forked it has ended"


def test_engines_of_one_stem_have_seeds_of_their_own(link: Link) -> None:
    link.stem("s")
    for number in range(3):
        link.spawn(f"e{number}", "s")
    assert len({link.about(f"e{number}")["random"] for number in range(3)}) == 3


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("raise SystemExit(7)", {"code": 7}),
        ("import os; os._exit(3)", {"code": 3}),
        ("import os; os.kill(os.getpid(), 9)", {"signal": 9}),
        ("import os; os.abort()", {"signal": 6}),
        ("import os; os.kill(os.getpid(), 15)", {"signal": 15}),
        ("import ctypes; ctypes.string_at(0)", {"signal": 11}),
    ],
)
def test_its_end_is_told_like_that_of_any_other(link: Link, code: str, end: dict[str, int]) -> None:
    link.stem("s")
    channel = link.spawn("e", "s")
    link.about("e")
    channel.send(code.encode())
    assert link.told("exited", "e") == {"is": "exited", "engine": "e", "killed": None, **end}
    assert "said" in link.output.read_text()


def test_what_it_leaves_behind_ends_with_it(link: Link) -> None:
    link.stem("s")
    channel = link.spawn("e", "s")
    link.about("e")
    channel.send(
        b"import os\nif os.fork() == 0:\n os.setsid(); import time\n"
        b" print('left', os.getpid(), flush=True); time.sleep(600)\n"
        b"import time; time.sleep(600)"
    )
    left = eventually(lambda: [x for x in link.output.read_text().splitlines() if "left" in x], what="it")
    send(link.told("spawned", "e")["pid"], signal.SIGKILL)
    assert link.told("exited", "e")["signal"] == 9
    assert not alive(int(left[0].split()[1]))


def test_engines_go_on_without_their_stem_and_the_next_is_started_without(link: Link) -> None:
    stem = link.stem("s")
    channel = link.spawn("old", "s")
    old = link.about("old")["pid"]
    send(stem, signal.SIGKILL)
    assert link.told("exited", "s")["signal"] == 9
    link.spawn("new", "s")
    about = link.about("new")
    assert about["plain"]
    assert about["fds"][:-1] == [0, 1, 2, 3], "and the one that lists them"
    assert not link.told("spawned", "new")["forked"]
    assert alive(old)
    channel.send(b"raise SystemExit(5)")
    assert link.told("exited", "old")["code"] == 5


def test_what_a_stem_was_asked_for_when_it_was_killed_is_started_without_it(link: Link) -> None:
    stem = link.stem("s")
    send(stem, signal.SIGSTOP)
    for name in ("one", "two"):
        link.spawn(name, "s")
    send(stem, signal.SIGKILL)
    for name in ("one", "two"):
        assert link.about(name)["plain"]
        assert not link.told("spawned", name)["forked"]


def test_an_engine_that_is_killed_before_it_was_forked_ends_when_it_is(link: Link) -> None:
    stem = link.stem("s")
    send(stem, signal.SIGSTOP)
    link.spawn("e", "s")
    link.order("kill", engine="e")
    link.order("deadlines", ordinary=2e9, strict=2e9, n=2)
    assert link.told("pong", None)  # pyright: ignore[reportArgumentType] - of no engine
    send(stem, signal.SIGCONT)
    assert link.told("exited", "e") == {"is": "exited", "engine": "e", "killed": "asked", "signal": 9}


def test_an_engine_that_is_killed_before_its_stem_dies_is_not_started_without(link: Link) -> None:
    stem = link.stem("s")
    send(stem, signal.SIGSTOP)
    channel = link.spawn("e", "s")
    link.order("kill", engine="e")
    link.order("kill", engine="s")
    assert link.told("exited", "e") == {"is": "exited", "engine": "e", "killed": "asked", "signal": 9}
    assert channel.recv(1) == b"", "it said nothing"


def test_a_deadline_that_passes_before_it_was_forked_ends_it(link: Link) -> None:
    stem = link.stem("s")
    send(stem, signal.SIGSTOP)
    link.spawn("e", "s")
    link.deadlines(0.0)
    send(stem, signal.SIGCONT)
    assert link.told("exited", "e") == {"is": "exited", "engine": "e", "killed": "deadline", "signal": 9}
    assert alive(stem), "it has nobody's code in it"


def test_a_warden_that_wakes_to_a_deadline_and_a_renewal_at_once_goes_on(link: Link) -> None:
    passes_at, later = time.clock_gettime(CLOCK) + 0.3, time.clock_gettime(CLOCK) + 3600
    link.order("deadlines", ordinary=later, strict=passes_at, n=2)
    link.spawn("strict", "", strict=True)
    link.spawn("ordinary", "")
    link.about("ordinary")
    link.process.send_signal(signal.SIGSTOP)
    eventually(lambda: time.clock_gettime(CLOCK) > passes_at, what="the deadline has passed")
    link.order("deadlines", ordinary=later, strict=later, n=3)
    link.process.send_signal(signal.SIGCONT)
    assert link.told("exited", "strict")["killed"] == "deadline"
    link.channels["ordinary"].send(b"raise SystemExit(4)")
    assert link.told("exited", "ordinary")["code"] == 4


def test_a_deadline_ends_engines_that_were_forked(link: Link) -> None:
    link.stem("s")
    link.spawn("e", "s")
    link.about("e")
    link.deadlines(0.0)
    assert link.told("exited", "e")["killed"] == "deadline"


def test_all_of_it_ends_with_the_agent(link: Link) -> None:
    stem = link.stem("s")
    link.spawn("e", "s")
    engine = link.about("e")["pid"]
    link.spawn("late", "s")
    link.control.close()
    _gone(stem, engine, link.process.pid)


def test_all_of_it_ends_with_a_killed_warden(link: Link) -> None:
    stem = link.stem("s")
    link.spawn("e", "s")
    engine = link.about("e")["pid"]
    link.process.kill()
    _gone(stem, engine)


def test_a_program_that_takes_no_orders_costs_no_engine(link: Link) -> None:
    link.stem("s", "raise SystemExit('not today')")
    link.spawn("e", "s")
    assert link.about("e")["plain"]
    assert link.told("exited", "s")["code"] == 1
    assert "not today" in link.output.read_text()


def test_a_directory_that_is_gone_is_told_as_without_a_stem(link: Link) -> None:
    link.stem("s")
    link.directory = link.directory / "gone"
    link.spawn("e", "s")
    assert link.told("exited", "e")["code"] == 127
    assert "cannot start" in link.output.read_text()


def test_stems_that_are_killed_at_any_moment_lose_no_engine(link: Link) -> None:
    """Each engine is started by the stem or without it, and once."""
    for number in range(24):
        stem, name = link.stem(f"s{number}"), f"e{number}"
        link.spawn(f"first{number}", f"s{number}")
        link.about(f"first{number}")
        link.spawn(name, f"s{number}")
        until = time.perf_counter() + number / 24 * 0.006
        while time.perf_counter() < until:  # for a moment too short to be slept
            pass
        send(stem, signal.SIGKILL)
        about = link.about(name)
        link.channels[name].send(b"raise SystemExit(4)")
        assert about.get("plain") is not link.told("spawned", name)["forked"]
        assert link.told("exited", name)["code"] == 4
        link.order("kill", engine=f"first{number}")
