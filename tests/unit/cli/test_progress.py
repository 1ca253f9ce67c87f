"""How far a run is, told from the lines of its record, and drawn on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from farhand.cli import progress
from farhand.cli.progress import Tally, shown
from farhand.sdk import events


def began(key: str, name: str = "fit") -> str:
    return events.task_began(key, name, 1.0, "", None)


def ended(key: str, state: str = "completed", name: str = "fit") -> str:
    return events.line("checkpoint", {"key": key, "name": name, "state": state})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], ""),
        ([began("a"), began("b")], "fit 0 done, 2 running"),
        ([began("a"), began("b"), ended("a")], "fit 1 done, 1 running"),
        ([began("a"), ended("a", "failed")], "fit 0 done, 1 failed"),
        ([ended("a")], "fit 1 done"),  # kept from before: it was never begun here
        ([began("a"), began("b", "load")], "fit 0 done, 1 running; load 0 done, 1 running"),
        ([events.log(1.0, '["task"', "stdout", "info", None)], ""),
        ([events.line("progress", {"done": 2.0, "message": "reading"})], "train 2 reading"),
        ([events.line("progress", {"done": 2.0}), events.line("progress", {"done": 3.0})], "train 3"),
        (
            [began("a"), events.line("progress", {"done": 2.0, "total": 4.0, "task": "a"})],
            "fit 0 done, 1 running; fit 2 of 4",
        ),
        ([began("a"), events.line("progress", {"done": 2.0, "task": "a"}), ended("a")], "fit 1 done"),
    ],
)
def test_a_tally_says_what_the_lines_come_to(lines: list[str], said: str) -> None:
    tally = Tally("train")
    for line in lines:
        tally.take(line)
    assert tally.sentence() == said


def test_elsewhere_than_on_a_terminal_a_line_comes_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with shown("train") as watch:
        assert watch is not None
        watch(began("a"))
        assert capsys.readouterr().err == ""
        now += progress.TELL_S
        watch(ended("a"))
        watch(began("b"))
    assert capsys.readouterr() == ("", "train: fit 1 done\n")


def test_what_is_not_wanted_is_not_watched() -> None:
    with shown("train", wanted=False) as watch:
        assert watch is None


FLOW = """
import time
from farhand import flow, progress, task

@task
def step(n: int) -> int:
    time.sleep(0.15)
    return n

@flow
def slow():
    for n in range(6):
        print("at", step(n))
        progress(n + 1, 6, "steps")
    return "over"
"""


def test_a_terminal_shows_calls_and_bars_below_the_output_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(FLOW)
    call = [sys.executable, "-m", "farhand", "run", "slow.py", "--home", str(tmp_path / "home")]
    seen = _on_a_terminal(call, tmp_path)
    assert re.search(r"\d done, 1 running", seen)
    assert re.search(r"\d of 6 steps", seen)
    assert _screen(seen) == [*(f"at {n}" for n in range(6)), "'over'"], seen


def _on_a_terminal(call: list[str], cwd: Path) -> str:
    """What a program writes to a terminal, but for its last words, which hold a time."""
    ours, theirs = pty.openpty()
    env = {"TERM": "xterm", "COLUMNS": "80", **os.environ}
    process = subprocess.Popen(call, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = bytearray()
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:
        pass  # the terminal of a process that has ended
    os.close(ours)
    assert process.wait(20) == 0
    return re.sub(r"slow completed in .* s\r\n", "", seen.decode())


def _screen(text: str) -> list[str]:
    """The lines that a terminal is left with: ups and erasures are carried out, colours left out."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")
    lines, row = [""], 0
    for piece in re.findall(r"\x1b\[\d*[AJ]|\n|[^\x1b\n]+", text):
        if piece == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif piece.endswith("A") and piece.startswith("\x1b"):
            row -= int(piece[2:-1])
        elif piece == "\x1b[J":
            lines[row:] = [""]
        else:
            lines[row] += piece
    return [line for line in lines if line]
