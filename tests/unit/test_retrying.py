"""Delays before retries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farhand.lifecycle import Ending, Standing, conclude
from farhand.model import RetryDelay
from farhand.retrying import retry_delay_s


@pytest.mark.parametrize(("number", "expected"), [(1, 1.0), (2, 5.0), (3, 5.0), (9, 5.0)])
def test_the_last_delay_of_a_list_goes_on(number: int, expected: float) -> None:
    assert retry_delay_s([1.0, 5.0], number) == expected


@pytest.mark.parametrize(("number", "expected"), [(1, 1.0), (2, 2.0), (3, 4.0), (7, 60.0), (10_000, 60.0)])
def test_exponential_delays_double_up_to_their_cap(number: int, expected: float) -> None:
    assert retry_delay_s([1.0], number, factor=2.0, cap_s=60.0) == expected


@given(number=st.integers(1, 50), jitter=st.floats(0, 1), draw=st.floats(0, 1))
def test_a_jitter_is_a_share_either_way_and_never_below_zero(number: int, jitter: float, draw: float) -> None:
    plain = retry_delay_s([1.0], number, 2.0, 60.0)
    delay_s = retry_delay_s([1.0], number, 2.0, 60.0, jitter, draw)
    assert delay_s >= 0
    assert plain * (1 - jitter) - 1e-9 <= delay_s <= plain * (1 + jitter) + 1e-9


def test_conclude_takes_the_delay_of_this_retry_with_the_draw_it_is_given() -> None:
    delay = RetryDelay((1.0,), factor=2.0, cap_s=60.0, jitter=0.5)
    standing = Standing(retries=5, retries_used=2, retry_delay=delay, draw=1.0, started=True)
    assert conclude(standing, Ending("failed")).delay_s == pytest.approx(6.0)


@pytest.mark.parametrize("state", ["failed", "timeout", "silence"])
def test_a_failure_that_no_retry_changes_is_the_end(state: str) -> None:
    standing = Standing(retries=5, started=True)
    verdict = conclude(standing, Ending(state, retryable=False))
    assert (verdict.state, verdict.retries_used) == ("failed", 0)


def test_silence_is_a_failure_with_that_reason() -> None:
    assert conclude(Standing(started=True), Ending("silence", "anything")).reason == "silence"
    assert conclude(Standing(started=True, retries=1), Ending("silence")).requeued
