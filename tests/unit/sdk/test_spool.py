"""The spool's bell and its limit."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from farhand.sdk import events
from farhand.sdk.spool import Spool


class Agent:
    """Counts the bells."""

    def __init__(self) -> None:
        self.bells: list[bool] = []
        self.rung = threading.Event()

    def send(self, kind: str, **fields: Any) -> None:
        assert kind == "bell"
        self.bells.append(fields["urgent"])
        self.rung.set()


@pytest.fixture
def agent() -> Agent:
    return Agent()


def make(tmp_path: Path, agent: Agent, bytes_max: int = 1000) -> Spool:
    return Spool(tmp_path / "spool", tmp_path, agent.send, lambda kind, args: None, bytes_max)


def line(text: str) -> str:
    return events.log(1.0, text, "stdout", "info", None)


def lines(tmp_path: Path) -> list[Any]:
    return [json.loads(text) for text in (tmp_path / "spool").read_text().splitlines()]


def test_one_bell_for_many_lines_until_it_is_armed_again(tmp_path: Path, agent: Agent) -> None:
    spool = make(tmp_path, agent)
    for number in range(5):
        spool.write(line(str(number)))
    assert agent.bells == [False]
    spool.armed((tmp_path / "spool").stat().st_size)
    spool.write(line("more"))
    assert agent.bells == [False, False]


def test_a_spool_that_begins_unarmed_rings_when_it_is_armed_or_for_what_is_urgent(
    tmp_path: Path, agent: Agent
) -> None:
    spool = Spool(tmp_path / "spool", tmp_path, agent.send, lambda kind, args: None, armed=False)
    spool.write(line("a"))
    assert agent.bells == []
    spool.armed(0)
    assert agent.bells == [False]
    spool.write(events.line("call", {}), urgent=True)
    assert agent.bells == [False, True]


def test_an_urgent_line_rings_though_it_is_not_armed(tmp_path: Path, agent: Agent) -> None:
    spool = make(tmp_path, agent)
    spool.write(line("a"))
    spool.write(events.line("result", {}), urgent=True)
    assert agent.bells == [False, True]


def test_an_urgent_line_behind_an_urgent_bell_is_rung_for_at_the_next_arm(
    tmp_path: Path, agent: Agent
) -> None:
    spool = make(tmp_path, agent)
    spool.write(events.line("call", {}), urgent=True)
    read = (tmp_path / "spool").stat().st_size
    spool.write(events.line("call", {}), urgent=True)
    assert agent.bells == [True]
    spool.armed(read)
    assert agent.bells == [True, True]


def test_a_full_spool_drops_lines_of_output_and_says_how_many(tmp_path: Path, agent: Agent) -> None:
    """B093: code that prints is never held up by a server that takes nothing."""
    spool = make(tmp_path, agent)
    for number in range(100):
        spool.write(line(f"{number} {'x' * 50}"))
    kept = len(lines(tmp_path))
    assert kept < 20
    size = (tmp_path / "spool").stat().st_size
    spool.armed(size, acked=size)
    spool.write(line("after"))
    marker, last = lines(tmp_path)[-2:]
    assert marker[1]["text"] == f"{100 - kept} lines of output were dropped: the log was full"
    assert last[1]["text"] == "after"


def test_other_events_wait_for_room(tmp_path: Path, agent: Agent) -> None:
    spool = make(tmp_path, agent)
    while (tmp_path / "spool").stat().st_size <= 1000:
        spool.write(line("x" * 100))
    agent.rung.clear()
    writing = threading.Thread(target=spool.write, args=(events.line("checkpoint", {}),))
    writing.start()
    assert agent.rung.wait(10)
    assert lines(tmp_path)[-1][0] == "log"
    size = (tmp_path / "spool").stat().st_size
    spool.armed(size, acked=size)
    writing.join(10)
    assert lines(tmp_path)[-1][0] == "checkpoint"


def test_nothing_is_written_after_the_end(tmp_path: Path, agent: Agent) -> None:
    spool = make(tmp_path, agent)
    spool.write(line("a"))
    spool.close()
    spool.close()
    spool.write(line("b"))
    assert len(lines(tmp_path)) == 1


def test_a_line_that_the_full_disk_tore_leaves_no_trace(
    tmp_path: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = make(tmp_path, agent)
    spool.write(line("before"))
    write, left = os.write, [10]

    def fill(descriptor: int, content: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written, left[0] = write(descriptor, content[: left[0]]), 0
        return written

    monkeypatch.setattr("farhand.sdk.spool.os.write", fill)
    with pytest.raises(OSError, match="space"):
        spool.write(line("torn"))
    monkeypatch.undo()
    spool.write(line("after"))
    assert [body["text"] for _, body in lines(tmp_path)] == ["before", "after"]


def test_an_agent_that_takes_urgent_bells_unanswered_gets_each_and_is_told_of_the_rest_as_ever(
    tmp_path: Path, agent: Agent
) -> None:
    rung: list[int] = []
    spool = Spool(
        tmp_path / "spool",
        tmp_path,
        agent.send,
        lambda kind, args: None,
        armed=False,
        ring=lambda: rung.append((tmp_path / "spool").stat().st_size),
    )
    for _ in range(2):
        spool.write(line("call"), urgent=True)
        spool.write(line("not urgent"))
    assert rung == [len(line("call")), len(line("call") * 2 + line("not urgent"))]
    assert agent.bells == []
    spool.armed(0)
    spool.write(line("call"), urgent=True)
    spool.write(line("not urgent"))
    assert agent.bells == [False]


def test_a_directory_that_was_cleared_away_is_made_by_whoever_is_there_first(
    tmp_path: Path, agent: Agent
) -> None:
    spool = Spool(tmp_path / "gone" / "spool", tmp_path, agent.send, lambda kind, args: None)
    spool.write(line("here"))
    spool.close()
    assert lines(tmp_path / "gone")[0][0] == "log"
