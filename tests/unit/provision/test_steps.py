"""What becomes of a machine that was asked for, from every state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.lifecycle import MACHINE, may_advance
from farhand.model import Machine
from farhand.provision.config import Profile, Settings
from farhand.provision.interface import ENDED, ENDING, PENDING, RUNNING, Seen
from farhand.provision.steps import Around, Step, after_status, around_it, backoff_s

NOW = 10_000.0
SETTINGS = Settings("slurm", "hpc", (Profile("gpu"),), provision_timeout_s=900)


def machine(state: str, **fields: object) -> Machine:
    known = Machine("m", "hpc", "gpu", state, (), "jti", NOW + 3600, NOW - 60, NOW - 60, NOW - 60)
    return replace(known, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "seen", "to"),
    [
        ("asked", None, None),
        ("asked", Seen(PENDING, "PENDING: Priority", "7"), "pending"),
        ("asked", Seen(RUNNING, "RUNNING", "7"), "running"),
        ("asked", Seen(ENDED, "CANCELLED", "7"), "ended"),
        ("pending", Seen(PENDING, "PENDING: Resources", "7"), "pending"),
        ("pending", Seen(RUNNING, "RUNNING", "7"), "running"),
        ("pending", Seen(ENDED, "BOOT_FAIL", "7"), "ended"),
        ("pending", None, "ended"),
        ("running", Seen(PENDING, "PENDING: requeued", "7"), "pending"),
        ("running", Seen(ENDED, "NODE_FAIL", "7"), "ended"),
        ("running", None, "ended"),
        ("attached", Seen(RUNNING, "RUNNING", "7"), "attached"),
        ("attached", Seen(PENDING, "PENDING: BeginTime", "7"), "pending"),
        ("attached", Seen(ENDED, "COMPLETED", "7"), "ended"),
        ("attached", None, "ended"),
        ("running", Seen(ENDING, "COMPLETING", "7"), "running"),
        ("attached", Seen(ENDING, "COMPLETING", "7"), "attached"),
        ("leaving", Seen(ENDING, "COMPLETING", "7"), None),
        ("leaving", Seen(RUNNING, "RUNNING", "7"), None),
        ("leaving", Seen(ENDED, "CANCELLED", "7"), "ended"),
        ("leaving", None, "ended"),
    ],
)
def test_the_schedulers_word_has_a_consequence_in_every_state(
    state: str, seen: Seen | None, to: str | None
) -> None:
    step = after_status(machine(state), seen, NOW)
    assert (None if step is None else step.state) == to
    assert to in (None, state) or may_advance(MACHINE, state, to)
    if seen is not None and to not in (None, "ended"):
        assert step is not None
        assert (step.fields["external"], step.fields["reason"]) == ("7", seen.reason)


@pytest.mark.parametrize(("state", "to"), [(ENDING, "ended"), (RUNNING, None)])
def test_what_its_scheduler_has_ended_holds_its_place_for_a_minute_though_its_node_never_says_so(
    state: str, to: str | None
) -> None:
    step = after_status(machine("leaving", since=NOW - 61), Seen(state, "", "7"), NOW)
    assert (None if step is None else step.state) == to


@pytest.mark.fault("4.9")
def test_what_is_put_back_into_the_queue_waits_from_then_on() -> None:
    step = after_status(machine("attached", attached_at=NOW - 50), Seen(PENDING, "PENDING", "7"), NOW)
    assert step is not None
    assert (step.state, step.fields["waits_since"], step.fields["attached_at"]) == ("pending", NOW, None)


TOO_LONG = {"waits_since": NOW - 901}


@pytest.mark.parametrize(
    ("known", "around", "settings", "to", "why"),
    [
        (machine("pending"), Around(), SETTINGS, None, ""),
        (machine("pending"), Around(online=True), SETTINGS, "attached", ""),
        (machine("asked"), Around(online=True), SETTINGS, "attached", ""),
        (machine("attached"), Around(online=True), SETTINGS, None, ""),
        (machine("attached"), Around(lost=True), SETTINGS, None, ""),
        (machine("attached"), Around(), SETTINGS, "running", ""),
        (machine("pending", **TOO_LONG), Around(), SETTINGS, "leaving", "no worker attached within 900 s"),
        (machine("asked", **TOO_LONG), Around(), SETTINGS, "leaving", "no worker attached within 900 s"),
        (machine("pending", **TOO_LONG), Around(), replace(SETTINGS, provision_timeout_s=0), None, ""),
        (machine("pending", expires_at=NOW - 1), Around(), SETTINGS, "leaving", "its token has expired"),
        (machine("pending"), Around(unneeded_s=11), SETTINGS, "leaving", "nothing waits for it any more"),
        (machine("pending"), Around(unneeded_s=9), SETTINGS, None, ""),
        (machine("attached"), Around(online=True, unneeded_s=99), SETTINGS, None, ""),
        (machine("running", attached_at=NOW - 90), Around(unneeded_s=99), SETTINGS, None, ""),
        (
            machine("running", attached_at=NOW - 90, since=NOW - 61),
            Around(),
            SETTINGS,
            "leaving",
            "its worker has left",
        ),
        (machine("leaving", **TOO_LONG), Around(unneeded_s=99), SETTINGS, None, ""),
    ],
)
def test_its_worker_and_the_time_have_a_consequence(
    known: Machine, around: Around, settings: Settings, to: str | None, why: str
) -> None:
    step = around_it(known, around, settings, NOW)
    assert (None if step is None else step.state) == to
    assert step is None or step.fields.get("reason", "").startswith(why)


@pytest.mark.fault("4.12")
def test_a_token_that_expired_in_the_queue_ends_the_wait_with_the_schedulers_last_word() -> None:
    known = machine("pending", expires_at=NOW - 1, reason="PENDING: Priority")
    expected = "its token has expired while it waited; it was PENDING: Priority"
    assert around_it(known, Around(), SETTINGS, NOW) == Step("leaving", {"reason": expected})


def test_failures_back_off_to_ten_minutes() -> None:
    assert [backoff_s(n, 10) for n in (0, 1, 2, 3, 99)] == [0, 20, 40, 80, 600]
