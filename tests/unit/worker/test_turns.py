"""Whose turn it is to report."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from farhand_worker.confirming import Confirmations
from farhand_worker.reports import Outgoing, Reports
from farhand_worker.turns import JobKey, Turns
from farhand_worker.uploads import Uploads
from farhand_worker.waking import Waking


class FakeReports:
    """Some batches, and whether there will be more."""

    def __init__(self, count: int, *, told: bool = False, stuck: bool = False) -> None:
        self.count = count
        self._told = told
        self.stuck = stuck
        self.holds = False
        self.wanted: list[str] = []

    def next(self) -> Outgoing | None:
        self.count -= 1
        return Outgoing("engine", 1, ["[]"]) if self.count >= 0 else None

    @property
    def unsent(self) -> bool:
        return self.count > 0

    @property
    def told(self) -> bool:
        return self._told and self.count <= 0


class Beside:
    """What is said to all that turns tell of."""

    def __init__(self) -> None:
        self.outbox: dict[JobKey, Reports] = {}
        self.confirmed: list[JobKey] = []
        self.lost: list[JobKey] = []

    def said(self, key: JobKey) -> None:
        self.confirmed.append(key)

    def want(self, _: Any) -> None:
        """Nothing is to be uploaded."""

    def within(self, _: float) -> None:
        """Nothing is held."""


@pytest.fixture
def beside() -> Beside:
    return Beside()


@pytest.fixture
def turns(beside: Beside) -> Turns:
    return Turns(
        beside.outbox,
        cast(Uploads, beside),
        cast(Confirmations, beside),
        cast(Waking, beside),
        lambda key, _: beside.lost.append(key),
    )


def _add(beside: Beside, job: str, reports: FakeReports) -> JobKey:
    beside.outbox[job, 1] = cast(Reports, reports)
    return job, 1


def _said(turns: Turns) -> list[str]:
    texts: list[str] = []
    while (text := turns.next()) is not None:
        texts.append(json.loads(text)["job"])
    return texts


def test_each_reports_after_the_others(turns: Turns, beside: Beside) -> None:
    for job in "ab":
        turns.join(_add(beside, job, FakeReports(2)))
    assert _said(turns) == ["a", "b", "a", "b"]
    assert beside.confirmed == [("a", 1), ("b", 1)] * 2


def test_one_that_waits_is_silent_until_it_joins_also_in_a_new_session(turns: Turns, beside: Beside) -> None:
    key = _add(beside, "a", FakeReports(1))
    turns.wait(key)
    turns.begin_again()
    assert _said(turns) == []
    turns.join(key)
    assert _said(turns) == ["a"]


def test_one_that_has_told_all_is_asked_again_only_in_a_new_session(turns: Turns, beside: Beside) -> None:
    reports = FakeReports(1, told=True)
    turns.join(_add(beside, "a", reports))
    assert _said(turns) == ["a"]
    assert _said(turns) == []
    reports.count = 1
    assert _said(turns) == []
    turns.begin_again()
    assert _said(turns) == ["a"]


def test_one_that_left_reports_no_more_and_a_lost_value_is_told_of(turns: Turns, beside: Beside) -> None:
    left = _add(beside, "a", FakeReports(1))
    turns.join(left)
    turns.leave(left)
    stuck = _add(beside, "b", FakeReports(0, stuck=True))
    turns.join(stuck)
    assert _said(turns) == []
    assert beside.lost == [stuck]


def test_what_somebody_waits_for_is_said_out_of_turn(turns: Turns, beside: Beside) -> None:
    for job, count in (("a", 2), ("b", 1), ("c", 1)):
        beside.outbox[job, 1] = cast(Reports, FakeReports(count))
        turns.join((job, 1))
    said = [turns.next_of(("b", 1)), turns.next_of(("b", 1)), turns.next_of(("none", 1))]
    assert [text and json.loads(text)["job"] for text in said] == ["b", None, None]
    assert beside.confirmed == [("b", 1)]
    assert [json.loads(str(turns.next()))["job"] for _ in range(3)] == ["a", "c", "a"]


def test_what_waits_behind_another_is_not_asked_out_of_turn(turns: Turns, beside: Beside) -> None:
    beside.outbox["a", 1] = cast(Reports, FakeReports(1))
    turns.wait(("a", 1))
    assert turns.next_of(("a", 1)) is None
    turns.join(("a", 1))
    assert turns.next_of(("a", 1)) is not None
