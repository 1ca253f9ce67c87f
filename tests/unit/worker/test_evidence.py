"""The two deadlines, against every kind of answer; times are plain numbers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from farhand_worker.evidence import Evidence
from farhand_worker.protocol import Times

TIMES = Times(lease_s=15, outage_s=600)


def test_nothing_may_run_before_the_first_answer() -> None:
    evidence = Evidence(TIMES)
    assert evidence.ordinary == evidence.strict == float("-inf")


def test_an_answer_is_dated_by_when_the_question_was_sent() -> None:
    evidence = Evidence(TIMES)
    evidence.acknowledged(100)
    assert (evidence.ordinary, evidence.strict) == (115, 115)


def test_an_old_answer_read_late_proves_nothing_new() -> None:
    evidence = Evidence(TIMES)
    evidence.acknowledged(100)
    evidence.acknowledged(90)
    assert evidence.ordinary == 115


def test_an_outage_is_ridden_while_only_refused_connections_keep_engines_alive() -> None:
    evidence = Evidence(TIMES)
    evidence.acknowledged(100)
    evidence.refused(110)
    assert [evidence.rides_outage(now) for now in (114, 115, 124, 125)] == [False, True, True, False]


def test_a_refused_connection_moves_the_ordinary_deadline_only() -> None:
    evidence = Evidence(TIMES)
    evidence.acknowledged(100)
    evidence.refused(110)
    assert (evidence.ordinary, evidence.strict) == (125, 115)


def test_a_refused_connection_does_not_revive_a_deadline_that_has_passed() -> None:
    evidence = Evidence(TIMES)
    evidence.acknowledged(100)
    evidence.refused(115)
    assert evidence.ordinary == 115


def test_refusals_count_for_outage_s_after_the_last_answer() -> None:
    evidence = Evidence(TIMES)
    evidence.acknowledged(0)
    for at in range(10, 1000, 10):
        evidence.refused(at)
    assert evidence.ordinary == 600 + 15


def test_without_outage_s_a_refusal_is_nothing() -> None:
    evidence = Evidence(replace(TIMES, outage_s=0))
    evidence.acknowledged(100)
    evidence.refused(101)
    assert evidence.ordinary == 115


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 2000)), max_size=40))
def test_deadlines_never_move_back_and_strict_never_outlives_ordinary(
    answers: list[tuple[bool, float]],
) -> None:
    evidence = Evidence(TIMES)
    before = evidence.ordinary, evidence.strict
    for acknowledged, at in answers:
        (evidence.acknowledged if acknowledged else evidence.refused)(at)
        after = evidence.ordinary, evidence.strict
        assert after[0] >= before[0]
        assert after[1] >= before[1]
        assert evidence.strict <= evidence.ordinary
        assert evidence.ordinary <= evidence.strict + TIMES.outage_s + 1e-6
        before = after
