"""The order in which the reports of an attempt leave, and what ends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from farhand_worker import reports as reports_module
from farhand_worker.protocol import Exit
from farhand_worker.reports import Reports, leftovers
from farhand_worker.spool import SpoolReader

RESULT = '["result",{"state":"%s","at":1}]\n'
LOG = '["log",{"at":1,"text":"e"}]\n'
END = Exit(1.0, "crashed", "signal 9")


def _reports(directory: Path, engine: str = "") -> Reports:
    reports = Reports(directory, directory / "outgoing", "j", 7)
    reports.create()
    Path(reports.engine_path).write_text(engine)
    reports.grow()
    return reports


def _send_all(reports: Reports) -> list[tuple[str, str]]:
    sent: list[tuple[str, str]] = []
    while batch := reports.next():
        sent.extend((batch.source, json.loads(line)[0]) for line in batch.lines)
    return sent


def test_a_result_goes_out_after_the_agents_lines_and_not_before_the_seal(tmp_path: Path) -> None:
    reports = _reports(tmp_path, LOG + RESULT % "completed")
    assert _send_all(reports) == [("engine", "log")]
    reports.log(["late"])
    reports.seal(END)
    assert _send_all(reports) == [("agent", "log"), ("engine", "result")]


def test_a_lost_value_stops_what_names_it_and_nothing_before(tmp_path: Path) -> None:
    reports = _reports(tmp_path, '["artifact",{},["one"]]\n["artifact",{},["two"]]\n')
    assert reports.next() is None
    assert reports.wanted == ["one", "two"]
    reports.lost.add("two")
    assert not reports.stuck
    reports.uploaded.add("one")
    assert _send_all(reports) == [("engine", "artifact")]
    assert reports.stuck


def test_what_waits_for_an_upload_is_looked_at_again_only_after_something_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = _reports(tmp_path, '["artifact",{},["one"]]\n')
    looks: list[object] = []
    look = SpoolReader.next_batch

    def counted(self: SpoolReader, *args: Any) -> Any:
        looks.append(self)
        return look(self, *args)

    monkeypatch.setattr(SpoolReader, "next_batch", counted)
    for _ in range(5):
        assert reports.next() is None
        assert reports.wanted == ["one"]
    assert len(looks) == 1
    reports.log(["between"])
    assert _send_all(reports) == [("agent", "log")]
    with Path(reports.engine_path).open("a") as file:
        file.write(LOG)
    reports.grow()
    assert reports.next() is None
    reports.uploaded.add("one")
    assert _send_all(reports) == [("engine", "artifact"), ("engine", "log")]


def test_lines_that_are_held_for_an_upload_are_looked_at_when_their_moment_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = _reports(tmp_path, STARTED + BLOB)
    reports.seal(END)
    reads: list[object] = []
    read = SpoolReader.next_batch
    monkeypatch.setattr(SpoolReader, "next_batch", lambda *args: reads.append(args) or read(*args))
    assert reports.next() is None
    once = len(reads)
    assert [reports.next() for _ in range(5)] == [None] * 5
    assert len(reads) == once
    monkeypatch.setattr(reports_module, "HOLD_S", 0.0)
    assert _send_all(reports) == [("engine", "started")]
    assert reports.wanted == ["one"]


STARTED = '["started",{"at":1}]\n'
BLOB = '["result",{"state":"completed","at":1},["one"]]\n'


def test_lines_wait_a_moment_for_the_value_that_the_next_one_names(tmp_path: Path) -> None:
    reports = _reports(tmp_path, STARTED + BLOB)
    reports.seal(END)
    assert reports.next() is None
    assert reports.holds
    assert reports.wanted == ["one"], "it is brought meanwhile"
    reports.uploaded.add("one")
    batch = reports.next()
    assert batch is not None
    assert len(batch.lines) == 2
    assert not reports.holds


def test_lines_go_without_a_value_that_takes_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = _reports(tmp_path, STARTED + BLOB)
    reports.seal(END)
    assert reports.next() is None
    monkeypatch.setattr(reports_module, "HOLD_S", 0.0)
    assert _send_all(reports) == [("engine", "started")]
    assert not reports.holds
    reports.uploaded.add("one")
    assert _send_all(reports) == [("engine", "result")]


@pytest.mark.parametrize("kind", ["call", "blocked", "unblocked", "yielded"])
def test_what_somebody_acts_on_waits_for_no_value(tmp_path: Path, kind: str) -> None:
    reports = _reports(tmp_path, STARTED + f'["{kind}",{{}}]\n' + BLOB)
    assert _send_all(reports) == [("engine", "started"), ("engine", kind)]


def test_an_exit_goes_out_after_the_engines_lines(tmp_path: Path) -> None:
    reports = _reports(tmp_path, LOG)
    reports.log(["last words"])
    reports.seal(END)
    assert _send_all(reports) == [("engine", "log"), ("agent", "log"), ("agent", "exit")]


def test_a_result_that_was_written_makes_the_exit_unnecessary(tmp_path: Path) -> None:
    reports = _reports(tmp_path, RESULT % "failed")
    reports.seal(END)
    assert _send_all(reports) == [("engine", "result")]


def test_a_stopped_job_is_not_reported_as_cancelled(tmp_path: Path) -> None:
    reports = _reports(tmp_path, LOG + RESULT % "cancelled")
    reports.seal(Exit(1.0, "stopped", "the worker stopped"), keep_result=False)
    assert _send_all(reports) == [("engine", "log"), ("agent", "exit")]


def test_a_stopped_job_that_completed_has_completed(tmp_path: Path) -> None:
    reports = _reports(tmp_path, RESULT % "completed")
    reports.seal(Exit(1.0, "stopped", "the worker stopped"), keep_result=False)
    assert _send_all(reports) == [("engine", "result")]


def test_it_is_settled_when_the_last_of_both_is_acknowledged(tmp_path: Path) -> None:
    reports = _reports(tmp_path, LOG)
    reports.seal(END)
    _send_all(reports)
    reports.acknowledge("engine", 1)
    assert not reports.settled
    reports.acknowledge("agent", 1)
    assert reports.settled
    reports.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_new_session_repeats_what_is_not_recorded_in_the_same_order(tmp_path: Path) -> None:
    reports = _reports(tmp_path, LOG + LOG + RESULT % "completed")
    reports.log(["a"])
    reports.seal(END)
    _send_all(reports)
    reports.rewind({"engine": 1})
    assert _send_all(reports) == [("engine", "log"), ("agent", "log"), ("engine", "result")]


def test_the_next_agent_finds_what_was_left_and_ends_it_once(tmp_path: Path) -> None:
    reports = _reports(tmp_path, LOG + '["resu')
    reports.log(["a"])
    reports.close()
    for _ in range(2):
        (found,) = leftovers(tmp_path, tmp_path / "outgoing")
        found.reopen(END)
        assert (found.job, found.lease) == ("j", 7)
        assert _send_all(found) == [("engine", "log"), ("agent", "log"), ("agent", "exit")]
        found.close()


def test_a_result_that_an_earlier_agent_set_aside_stays_aside(tmp_path: Path) -> None:
    reports = _reports(tmp_path, RESULT % "cancelled")
    reports.seal(Exit(1.0, "stopped", "the worker stopped"), keep_result=False)
    reports.close()
    (found,) = leftovers(tmp_path, tmp_path / "outgoing")
    found.reopen(END)
    assert _send_all(found) == [("agent", "exit")]


def test_a_job_that_was_only_handed_over_is_a_leftover_and_other_files_are_none(tmp_path: Path) -> None:
    for name in ("j-1.agent", "notes.engine", "-1.engine"):
        (tmp_path / name).touch()
    reports = Reports(tmp_path, tmp_path / "outgoing", "run.2-b", 7)
    reports.create()
    reports.close()
    assert [(found.job, found.lease) for found in leftovers(tmp_path, tmp_path / "outgoing")] == [
        ("run.2-b", 7)
    ]


def test_a_result_leaves_in_one_frame_with_what_came_before_it(tmp_path: Path) -> None:
    reports = _reports(tmp_path, LOG + RESULT % "completed")
    reports.seal(END)
    batch = reports.next()
    assert batch is not None
    assert [json.loads(line)[0] for line in batch.lines] == ["log", "result"]
    assert reports.next() is None


def test_the_rest_of_a_spool_is_given_up_when_a_value_it_names_is_lost(tmp_path: Path) -> None:
    naming = '["artifact",{"name":"x"},["sha256:1"]]\n'
    reports = _reports(tmp_path, LOG + naming + RESULT % "completed")
    reports.seal(END)
    assert reports.next() is None
    assert reports.wanted == ["sha256:1"]
    reports.lost.add("sha256:1")
    assert _send_all(reports) == [("engine", "log")], "what came before it is good, and waits no longer"
    assert reports.stuck
    reports.forget_rest()
    assert _send_all(reports) == [("agent", "exit")]


def _log(at: float, text: str) -> str:
    return f'["log",{{"at":{at},"text":"{text}","stream":"stdout","level":"info"}}]\n'


def _texts(reports: Reports) -> list[str]:
    texts: list[str] = []
    while batch := reports.next():
        for line in batch.lines:
            kind, body = json.loads(line)[:2]
            texts.append(body.get("text", kind))
        reports.acknowledge(batch.source, batch.first + len(batch.lines) - 1)
    return texts


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the agent's clock says next."""
    moments: list[float] = []
    monkeypatch.setattr(reports_module, "wall_now", lambda: moments.pop(0))
    return moments


def test_what_a_child_writes_goes_between_the_engines_lines_by_its_time(
    tmp_path: Path, clock: list[float]
) -> None:
    """B107."""
    checkpoint = '["checkpoint",{"key":"k"}]\n'
    reports = _reports(
        tmp_path, _log(1, "before") + checkpoint + _log(3, "after") + _log(7, "last") + RESULT % "completed"
    )
    clock += [2, 5, 5.5]
    reports.log(["child 1", "child 2"])
    reports.log(["child 3"])
    reports.log(["child 4"])
    said = ["before", "checkpoint", "child 1", "child 2", "after", "child 3", "child 4", "last"]
    assert _texts(reports) == said
    reports.seal(END)
    assert _texts(reports) == ["result"]


def test_lines_of_one_moment_are_the_engines_first(tmp_path: Path, clock: list[float]) -> None:
    reports = _reports(tmp_path, _log(2, "engine"))
    clock += [2]
    reports.log(["child"])
    assert _texts(reports) == ["engine", "child"]


def test_many_lines_of_a_child_go_as_they_come(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame for each change of the source would cost more than an order is worth."""
    reports = _reports(tmp_path, "".join(_log(2 * number, f"engine {number}") for number in range(100)))
    clock += [2 * number + 1 for number in range(100)]
    for number in range(100):
        reports.log([f"child {number}"])
    sources = [batch.source for batch in iter(reports.next, None)]
    assert sources == ["agent", "engine"]


def test_lines_that_are_full_are_not_overtaken_by_later_ones(tmp_path: Path, clock: list[float]) -> None:
    reports = _reports(tmp_path, "".join(_log(2 * number, f"engine {number}") for number in range(8)))
    clock += [2 * number + 1 for number in range(8)]
    for number in range(8):
        reports.log([f"child {number}"])
    sent = [json.loads(batch.lines[0])[1]["text"] for batch in iter(reports.next, None)]
    assert sent == [f"{who} {number}" for number in range(4) for who in ("engine", "child")]
    reports.acknowledge("engine", 4)
    batch = reports.next()
    assert batch is not None
    assert json.loads(batch.lines[0])[1]["text"] == "engine 4"


def test_an_end_waits_for_lines_that_say_they_came_later(tmp_path: Path) -> None:
    reports = _reports(tmp_path, _log(9, "by a clock that is ahead"))
    reports.seal(END)
    assert _send_all(reports) == [("engine", "log"), ("agent", "exit")]
