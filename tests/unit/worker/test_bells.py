"""When a spool is looked at, and what its engine is told of that."""

from __future__ import annotations

from typing import Any, cast

import pytest

from farhand_worker.bells import Bells
from farhand_worker.engine import Engine
from farhand_worker.reports import Reports


class FakeReports:
    """A spool of which so much is written, seen and recorded."""

    gone = False
    bytes_max = 100

    def __init__(self) -> None:
        self.written = self.seen_bytes = self.acked_bytes = 0

    def look(self) -> int:
        self.seen_bytes = self.written
        return self.written

    def acknowledge(self, source: str, number: int) -> bool:
        self.acked_bytes = number
        return True


class FakeEngine:
    """An engine whose bell is set by hand."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.set_to: Any = None
        self.bell = self
        self.channel = self

    @property
    def is_set(self) -> bool:
        return self.set_to is not None

    def set(self, act: Any, delay_s: float | None = None) -> None:
        self.set_to = act

    def clear(self) -> None:
        self.set_to = None

    def send(self, kind: str, **fields: Any) -> None:
        self.sent.append({"type": kind, **fields})


@pytest.fixture
def reports() -> FakeReports:
    return FakeReports()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def told() -> list[int]:
    return []


@pytest.fixture
def bells(reports: FakeReports, engine: FakeEngine, told: list[int]) -> Bells:
    bells = Bells(cast(Reports, reports), lambda: told.append(reports.seen_bytes))
    bells.begin(cast(Engine, engine))
    return bells


def test_what_is_urgent_is_told_and_the_engine_answered_unless_it_needs_no_answer(
    bells: Bells, reports: FakeReports, engine: FakeEngine, told: list[int]
) -> None:
    reports.written = 10
    bells.rung({"urgent": True, "unanswered": True})
    assert (told, engine.sent) == ([10], [])
    assert engine.is_set, "what is not urgent is still looked for"
    reports.written = 20
    bells.rung({"urgent": True})
    assert (told, engine.sent) == ([10, 20], [{"type": "arm", "read": 20, "acked": 0}])
    assert not engine.is_set


def test_an_engine_that_thinks_its_spool_is_half_full_is_told_what_is_recorded(
    bells: Bells, reports: FakeReports, engine: FakeEngine
) -> None:
    for written, recorded in ((40, 30), (60, 55), (90, 80), (120, 110)):
        reports.written = written
        bells.rung({"urgent": True, "unanswered": True})
        bells.recorded("engine", recorded)
    assert [frame["acked"] for frame in engine.sent] == [55, 110]


def test_one_that_waits_for_what_is_recorded_is_told_once(
    bells: Bells, reports: FakeReports, engine: FakeEngine
) -> None:
    reports.written = 10
    bells.rung({"urgent": True, "ack": True})
    engine.sent.clear()
    bells.recorded("engine", 5)
    bells.recorded("engine", 10)
    assert engine.sent == [{"type": "arm", "read": 10, "acked": 5}]


def test_nothing_is_looked_for_after_the_engine_has_done(
    bells: Bells, reports: FakeReports, engine: FakeEngine, told: list[int]
) -> None:
    bells.end()
    bells.rung({"urgent": True})
    bells.recorded("engine", 5)
    assert (told, engine.sent, engine.is_set) == ([], [], False)


def test_a_spool_that_cannot_be_read_is_looked_at_again(
    bells: Bells, reports: FakeReports, engine: FakeEngine, told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise OSError("the disk does not answer")

    reports.written = 10
    with monkeypatch.context() as broken:
        broken.setattr(reports, "look", refuse)
        bells.rung({"urgent": True})
    assert (told, engine.sent) == ([], [])
    engine.set_to()
    assert (told, engine.sent) == ([10], [{"type": "arm", "read": 10, "acked": 0}])
