"""What state follows what, and what the end of an attempt means."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farhand.errors import IllegalTransition
from farhand.lifecycle import (
    HANDOFF_DELAY_S_MAX,
    JOB,
    MACHINES_LOST_MAX,
    RUN,
    RUN_INITIAL,
    TABLES,
    TASK,
    Ending,
    ServiceStanding,
    Standing,
    Table,
    advance,
    conclude,
    conclude_service,
    diagram,
    is_terminal,
    may_advance,
    terminal_states,
)
from farhand.model import RetryDelay

INITIAL = {
    "run": RUN_INITIAL,
    "job": frozenset({"queued"}),
    "task": frozenset({"queued"}),
    "machine": frozenset({"asked"}),
    "service": frozenset({"stopped"}),
}
ENDINGS = ("completed", "failed", "timeout", "cancelled", "crashed", "stopped", "not_started", "lost")
NOBODYS_FAULT = ("stopped", "not_started", "lost")


def standings(cancelling: bool | None = None) -> st.SearchStrategy[Standing]:
    return st.builds(
        Standing,
        retries=st.just(2),
        retries_used=st.integers(0, 2),
        retry_delay=st.just(RetryDelay((5.0,))),
        crash_retries=st.just(3),
        crashes=st.integers(0, 3),
        handoffs_failed=st.integers(0, 40),
        started=st.booleans(),
        cancelling=st.booleans() if cancelling is None else st.just(cancelling),
        machines_lost=st.none() | st.integers(0, 7),
    )


tables = pytest.mark.parametrize("name", sorted(TABLES))


def reachable(table: Table, initial: frozenset[str]) -> set[str]:
    found, new = set(initial), set(initial)
    while new:
        new = {after for state in new for after in table[state]} - found
        found |= new
    return found


# ---------------------------------------------------------------- the tables


@tables
def test_every_state_can_be_reached(name: str) -> None:
    assert reachable(TABLES[name], INITIAL[name]) == set(TABLES[name])


@tables
def test_every_move_leads_to_a_state_of_the_table(name: str) -> None:
    table = TABLES[name]
    assert {after for states in table.values() for after in states} <= set(table)
    assert all(state not in after for state, after in table.items()), "no state follows itself"


def test_a_terminal_state_of_a_run_or_a_job_is_final() -> None:
    assert terminal_states(RUN) == {"completed", "failed", "cancelled", "crashed", "skipped"}
    assert terminal_states(JOB) == {"ended"}
    for table in (RUN, JOB):
        for state in terminal_states(table):
            assert is_terminal(table, state)
            for to in table:
                with pytest.raises(IllegalTransition, match=f"from {state} to {to}"):
                    advance(table, state, to)


def test_only_a_completed_task_run_is_never_executed_again() -> None:
    assert terminal_states(TASK) == {"completed"}
    assert all(may_advance(TASK, state, "running") for state in ("failed", "cancelled", "crashed"))


@tables
def test_from_every_state_an_end_can_be_reached(name: str) -> None:
    table = TABLES[name]
    for state in table:
        assert reachable(table, frozenset({state})) & (terminal_states(table) or INITIAL[name])


@pytest.mark.parametrize(
    ("state", "to"),
    [
        ("queued", "starting"),
        ("starting", "queued"),
        ("running", "queued"),
        ("running", "cancelling"),
        ("running", "cancelled"),
        ("cancelling", "cancelled"),
        ("cancelling", "completed"),
        ("starting", "completed"),
    ],
)
def test_a_run_may_move(state: str, to: str) -> None:
    assert advance(RUN, state, to) == to


@pytest.mark.parametrize(
    ("state", "to"),
    [
        ("queued", "running"),
        ("queued", "completed"),
        ("cancelling", "queued"),
        ("cancelling", "failed"),
        ("waiting", "running"),
    ],
)
def test_a_run_may_not_move(state: str, to: str) -> None:
    with pytest.raises(IllegalTransition) as raised:
        advance(RUN, state, to)
    assert raised.value.details == {"state": state, "to": to}


@given(table=st.sampled_from(sorted(TABLES)), choices=st.lists(st.integers(0, 50), max_size=40))
def test_whatever_is_tried_a_walk_keeps_to_the_table_and_stops_at_an_end(
    table: str, choices: list[int]
) -> None:
    moves = TABLES[table]
    states = sorted(moves)
    state = min(INITIAL[table])
    for choice in choices:
        to = states[choice % len(states)]
        if to in moves[state]:
            state = advance(moves, state, to)
        else:
            with pytest.raises(IllegalTransition):
                advance(moves, state, to)
        if is_terminal(moves, state):
            assert not any(may_advance(moves, state, other) for other in moves)


@tables
def test_the_diagram_shows_every_move_and_every_end(name: str) -> None:
    table = TABLES[name]
    lines = diagram(table).splitlines()
    assert lines[0] == "stateDiagram-v2"
    expected = {f"    {state} --> {to}" for state, after in table.items() for to in after}
    expected |= {f"    {state} --> [*]" for state in terminal_states(table)}
    assert set(lines[1:]) == expected
    assert len(lines) == len(expected) + 1


# ---------------------------------------------------------------- the end of an attempt


@given(standing=standings())
@pytest.mark.parametrize("state", ENDINGS)
def test_a_verdict_is_a_move_that_the_tables_allow(state: str, standing: Standing) -> None:
    verdict = conclude(standing, Ending(state, message="why"))
    run = "cancelling" if standing.cancelling else "running" if standing.started else "starting"
    assert may_advance(RUN, run, verdict.state)
    assert may_advance(JOB, "running" if standing.started else "leased", verdict.state) or is_terminal(
        RUN, verdict.state
    )
    assert verdict.requeued == (verdict.state == "queued")
    assert verdict.reason, "every state carries a reason"


@given(standing=standings())
@pytest.mark.parametrize("state", ["crashed", *NOBODYS_FAULT])
def test_the_end_of_a_machine_never_uses_up_retries(state: str, standing: Standing) -> None:
    verdict = conclude(standing, Ending(state))
    assert verdict.retries_used == standing.retries_used
    assert verdict.state != "failed"


@given(standing=standings(cancelling=False))
@pytest.mark.parametrize("state", ["stopped", "not_started"])
def test_a_drain_and_a_failed_hand_off_cost_neither_budget(state: str, standing: Standing) -> None:
    verdict = conclude(standing, Ending(state))
    assert verdict.requeued
    assert (verdict.retries_used, verdict.crashes) == (standing.retries_used, standing.crashes)


@given(standing=standings())
def test_work_that_was_finished_is_completed_whatever_else_was_asked(standing: Standing) -> None:
    assert conclude(standing, Ending("completed")).state == "completed"


@given(standing=standings(cancelling=True))
@pytest.mark.parametrize("state", [state for state in ENDINGS if state != "completed"])
def test_a_cancelling_attempt_ends_cancelled_and_is_never_queued_again(
    state: str, standing: Standing
) -> None:
    assert conclude(standing, Ending(state)).state == "cancelled"


def test_an_exception_is_retried_as_often_as_was_paid_for_and_no_more() -> None:
    standing = Standing(retries=2, retry_delay=RetryDelay((7.0,)), started=True)
    for used in (1, 2):
        verdict = conclude(standing, Ending("failed", message="ValueError: no"))
        assert (verdict.state, verdict.reason, verdict.retries_used) == ("queued", "retrying", used)
        assert verdict.delay_s == 7.0
        assert verdict.message == f"retry {used} of 2 after: ValueError: no"
        standing = replace(standing, retries_used=verdict.retries_used)
    verdict = conclude(standing, Ending("failed", message="ValueError: no"))
    assert (verdict.state, verdict.reason, verdict.message) == ("failed", "exception", "ValueError: no")


def test_a_timeout_is_a_failure_with_that_reason() -> None:
    assert conclude(Standing(started=True), Ending("timeout", "anything")).reason == "timeout"
    assert conclude(Standing(started=True, retries=1), Ending("timeout")).requeued


@pytest.mark.parametrize(("state", "reason"), [("crashed", "engine_died"), ("lost", "worker_lost")])
def test_an_engine_that_dies_is_tried_again_three_times(state: str, reason: str) -> None:
    standing = Standing(started=True)
    for crashes in (1, 2, 3):
        verdict = conclude(standing, Ending(state))
        assert (verdict.state, verdict.reason, verdict.crashes) == ("queued", reason, crashes)
        standing = replace(standing, crashes=verdict.crashes)
    assert conclude(standing, Ending(state)).state == "crashed"


def test_a_lost_machine_of_a_provisioner_costs_nothing_until_it_happens_too_often() -> None:
    lost = Ending("lost", "worker_lost", "gone")
    for before in range(MACHINES_LOST_MAX):
        verdict = conclude(Standing(started=True, crashes=2, machines_lost=before), lost)
        assert (verdict.state, verdict.reason, verdict.crashes) == ("queued", "worker_lost", 2)
    verdict = conclude(Standing(started=True, crashes=2, machines_lost=MACHINES_LOST_MAX), lost)
    assert (verdict.state, verdict.crashes) == ("queued", 3)
    died = conclude(Standing(started=True, machines_lost=0), Ending("crashed"))
    assert died.crashes == 1, "an engine that dies on a machine which lives is a crash like any other"


def test_without_crash_retries_a_lost_worker_crashes_the_run_and_says_so() -> None:
    verdict = conclude(
        Standing(crash_retries=0, started=True), Ending("lost", "worker_lost", "worker went away mid-call")
    )
    assert (verdict.state, verdict.reason) == ("crashed", "worker_lost")
    assert verdict.message == "worker went away mid-call"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("exit 3", "the engine ended: exit 3"),
        ("signal 9", "the engine ended: signal 9"),
        ("worker went away mid-call", "worker went away mid-call"),
    ],
)
def test_a_crash_is_told_in_words(message: str, told: str) -> None:
    ending = Ending("crashed", message=message)
    assert conclude(Standing(started=True, crash_retries=0), ending).message == told


@pytest.mark.parametrize("state", ["crashed", "lost"])
def test_an_engine_that_dies_before_user_code_began_costs_nothing(state: str) -> None:
    verdict = conclude(Standing(crash_retries=0), Ending(state))
    assert (verdict.state, verdict.crashes) == ("queued", 0)


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("state", ["crashed", "not_started", "a word nobody knows"])
def test_what_fails_at_once_is_tried_at_once_only_once_and_then_ever_slower(
    state: str, started: bool
) -> None:
    """No ending leads into an endless fast loop: it runs out of a budget, or the delay grows."""
    standing, delays = Standing(started=started), list[float]()
    for _ in range(30):
        verdict = conclude(standing, Ending(state))
        if not verdict.requeued:
            break
        delays.append(verdict.delay_s)
        standing = replace(standing, crashes=verdict.crashes, handoffs_failed=verdict.handoffs_failed)
    if len(delays) == 30:
        assert delays[0] == 0.0
        assert all(earlier < later for earlier, later in itertools.pairwise(delays[:10]))
        assert delays[-1] == HANDOFF_DELAY_S_MAX
    else:
        assert len(delays) == standing.crash_retries


@given(
    endings=st.lists(st.sampled_from(ENDINGS), min_size=1, max_size=60),
    retries=st.integers(0, 4),
    crash_retries=st.integers(0, 4),
    started=st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_whatever_happens_to_a_job_its_budgets_hold(
    endings: list[str], retries: int, crash_retries: int, started: list[bool]
) -> None:
    standing = Standing(retries=retries, crash_retries=crash_retries)
    failures = crashes = 0
    for ending, began in zip(endings, started, strict=False):
        verdict = conclude(replace(standing, started=began), Ending(ending))
        failures += ending in ("failed", "timeout")
        crashes += ending in ("crashed", "lost") and began
        assert verdict.retries_used <= retries
        assert verdict.crashes <= crash_retries
        if not verdict.requeued:
            assert ending in ("completed", "cancelled") or failures > retries or crashes > crash_retries
            return
        standing = replace(
            standing,
            retries_used=verdict.retries_used,
            crashes=verdict.crashes,
            handoffs_failed=verdict.handoffs_failed,
        )
    assert failures <= retries
    assert crashes <= crash_retries


# ---------------------------------------------------------------- services


@pytest.mark.parametrize(
    ("standing", "ending", "state", "reason", "delay_s", "starts", "restarts"),
    [
        (ServiceStanding(), Ending("crashed"), "degraded", "restarting", 1.0, 1, 1),
        (ServiceStanding(1, 1), Ending("crashed"), "degraded", "restarting", 2.0, 2, 2),
        (ServiceStanding(2, 2), Ending("crashed"), "down", "never_healthy", 0.0, 3, 2),
        (ServiceStanding(2, 2), Ending("not_started"), "down", "never_healthy", 0.0, 3, 2),
        (ServiceStanding(2, 2, 1.0), Ending("crashed"), "degraded", "restarting", 4.0, 0, 3),
        (ServiceStanding(0, 40, 1.0), Ending("crashed"), "degraded", "restarting", 60.0, 0, 41),
        (ServiceStanding(0, 40, 61.0), Ending("crashed"), "degraded", "restarting", 1.0, 0, 1),
        (ServiceStanding(2, 2), Ending("lost"), "degraded", "no_worker", 0.0, 2, 2),
        (ServiceStanding(2, 2), Ending("stopped"), "degraded", "no_worker", 0.0, 2, 2),
        (ServiceStanding(2, 2), Ending("not_started", "handoff_failed"), "degraded", "no_worker", 0.0, 2, 2),
        (ServiceStanding(2, 2, None, True), Ending("crashed"), "stopped", "stopped", 0.0, 0, 0),
        (ServiceStanding(0, 0, 9.0, True), Ending("lost"), "stopped", "stopped", 0.0, 0, 0),
    ],
)
def test_what_the_end_of_a_services_process_means(
    standing: ServiceStanding,
    ending: Ending,
    state: str,
    reason: str,
    delay_s: float,
    starts: int,
    restarts: int,
) -> None:
    verdict = conclude_service(standing, ending)
    assert (verdict.state, verdict.reason) == (state, reason)
    assert (verdict.delay_s, verdict.starts, verdict.restarts) == (delay_s, starts, restarts)
