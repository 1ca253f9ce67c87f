"""The order of a session, without a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farhand.gateway.session import ATTACHED, CLOSED, GREETING, Session
from farhand_worker import protocol
from tests.unit.engine.records import a_hello

FROM_AGENT = [
    protocol.Heartbeat(1),
    protocol.Accepted("j1", 7),
    protocol.Event("j1", 7, "engine", 1, [["log", {}]]),
    protocol.Request("q1", "j1", 7, "checkpoints", {"after": 0}),
    protocol.Bye("drained"),
    protocol.Drained(),
    protocol.Changed(),
    protocol.NoTunnel("t1", "the service does not listen"),
]
FROM_SERVER = [
    protocol.Refused("protocol", "no"),
    protocol.Cancel("j1", 7),
    protocol.Ack(n=1),
    protocol.Reply("q1", "j1", 7),
    protocol.Outcome("j1", 7, "k", {}),
    protocol.Fenced("j1", 7, "stale"),
]


@pytest.fixture
def session() -> Session:
    return Session(protocol.Times())


@pytest.fixture
def attached(session: Session) -> Session:
    session.attached()
    return session


def frame(message: Any, **changes: Any) -> str:
    return json.dumps({**json.loads(protocol.encode(message)), **changes})


# ---------------------------------------------------------------- what may be said when


def test_a_session_begins_with_hello(session: Session) -> None:
    assert session.state == GREETING
    assert session.receive(frame(a_hello())) == [a_hello()]


@pytest.mark.parametrize("message", FROM_AGENT + FROM_SERVER, ids=lambda message: message.type)
def test_nothing_else_may_come_first(session: Session, message: Any) -> None:
    with pytest.raises(protocol.ProtocolViolation, match=f"begins with hello, not {message.type}"):
        session.receive(frame(message))


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: message.type)
def test_an_attached_worker_may_say(attached: Session, message: Any) -> None:
    assert attached.state == ATTACHED
    assert attached.receive(frame(message)) == [message]


def test_whatever_a_worker_can_say_is_taken_when_it_is_attached() -> None:
    sent = {kind for kind in protocol.MESSAGES.values() if kind.__module__.endswith(".to_server")}
    assert sent - {protocol.Hello} == set(map(type, FROM_AGENT))


def test_several_messages_may_come_in_one_frame(attached: Session) -> None:
    text = protocol.encode_several([protocol.encode(message) for message in FROM_AGENT])
    assert attached.receive(text) == FROM_AGENT


@pytest.mark.parametrize(
    "messages",
    [[{"type": "several", "messages": []}], [{"type": "cancel", "job": "j", "lease": 1}], [7], ["x"]],
)
def test_what_may_not_come_may_not_come_among_several(attached: Session, messages: list[Any]) -> None:
    with pytest.raises(protocol.ProtocolViolation):
        attached.receive(json.dumps({"type": "several", "messages": messages}))


@pytest.mark.parametrize("message", [a_hello(), *FROM_SERVER], ids=lambda message: message.type)
def test_an_attached_worker_may_not_say(attached: Session, message: Any) -> None:
    with pytest.raises(protocol.ProtocolViolation, match="may not come from a worker now"):
        attached.receive(frame(message))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"type": "heartbeat"}',
        '{"type": "unheard of"}',
        '{"type": ["heartbeat"], "n": 1}',
        frame(protocol.Heartbeat(1), n="1"),
        frame(protocol.Accepted("j1", 7), job=["j1"]),
        frame(protocol.Accepted("j1", 7), lease=None),
        frame(FROM_AGENT[2], first="one"),
        frame(FROM_AGENT[2], events={"log": {}}),
        frame(FROM_AGENT[2], events=[1]),
        frame(FROM_AGENT[3], args=[]),
        "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_message_of_the_protocol_is_the_peers_fault(attached: Session, text: str) -> None:
    with pytest.raises(protocol.ProtocolViolation):
        attached.receive(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": "1"},
        {"protocol": ["1"]},
        {"parallel": "2"},
        {"parallel": None},
        {"labels": "gpu"},
        {"held": [1]},
        {"instance": None},
        {"draining": "no"},
    ],
    ids=str,
)
def test_a_hello_with_a_field_of_another_type_is_the_peers_fault(
    session: Session, changes: dict[str, Any]
) -> None:
    with pytest.raises(protocol.ProtocolViolation, match="not a hello of this protocol"):
        session.receive(frame(a_hello(), **changes))


def test_a_field_that_a_newer_peer_knows_is_passed_over(session: Session) -> None:
    assert session.receive(frame(a_hello(), mood="fine")) == [a_hello()]


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["type", "n", "job"]), x),
        max_leaves=5,
    )
)
def test_any_json_is_a_message_or_a_violation(value: Any) -> None:
    session = Session(protocol.Times())
    with pytest.raises(protocol.ProtocolViolation):
        session.receive(json.dumps(value))


def test_a_session_that_was_closed_is_not_attached_again(session: Session) -> None:
    session.close()
    session.attached()
    assert session.state == CLOSED


# ---------------------------------------------------------------- the greeting


@pytest.mark.parametrize("spoken", [[1, 1], [1, 2], [1, 9], [0, 1], [1]])
def test_ranges_that_overlap_ours_are_spoken_at_the_best_common_version(
    session: Session, spoken: list[int]
) -> None:
    hello = a_hello(protocol=spoken)
    assert session.greet(hello, ()) is None
    assert session.version(hello) == 1


@pytest.mark.fault("3.24")
@pytest.mark.parametrize(
    ("spoken", "sentence"),
    [
        (
            [0, 0],
            "this worker speaks protocol 0, the server 1 or newer; upgrade farhand-worker there",
        ),
        ([2, 3], "this worker speaks protocol 2, the server 1 or older; upgrade the server first"),
    ],
)
def test_a_version_mismatch_is_refused_for_good_saying_which_side_to_upgrade(
    session: Session, spoken: list[int], sentence: str
) -> None:
    assert session.greet(a_hello(protocol=spoken), ()) == protocol.Refused("protocol", sentence, final=True)


def test_the_best_common_version_is_the_highest_that_both_know(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "SUPPORTED", (1, 4))
    assert session.version(a_hello(protocol=[2, 3])) == 3
    assert session.version(a_hello(protocol=[2, 9])) == 4


def test_a_hello_without_versions_is_the_peers_fault(session: Session) -> None:
    with pytest.raises(protocol.ProtocolViolation, match="no version"):
        session.greet(a_hello(protocol=[]), ())


@pytest.mark.parametrize(
    ("told", "signed", "differing"),
    [
        (["gpu"], (), "gpu"),
        ([], ("gpu",), "gpu"),
        (["cuda12", "gpu"], ("eu", "gpu"), "cuda12, eu"),
    ],
)
def test_labels_other_than_the_tokens_are_refused_naming_them(
    session: Session, told: list[str], signed: tuple[str, ...], differing: str
) -> None:
    refusal = session.greet(a_hello(labels=told), signed)
    assert refusal is not None
    assert refusal.final
    assert refusal.code == "labels"
    assert refusal.message.endswith(f"they differ in {differing}")


@pytest.mark.parametrize("told", [None, ["gpu", "eu"], ["eu", "gpu", "gpu"]])
def test_labels_are_compared_as_a_set_and_need_not_be_told(session: Session, told: list[str] | None) -> None:
    assert session.greet(a_hello(labels=told), ("eu", "gpu")) is None


def test_a_worker_cannot_have_fewer_than_no_slots(session: Session) -> None:
    assert session.greet(a_hello(parallel=0), ()) is None
    refusal = session.greet(a_hello(parallel=-1), ())
    assert refusal is not None
    assert refusal.final


# ---------------------------------------------------------------- hand-offs


def test_a_hand_off_is_overdue_after_its_time_and_not_before(attached: Session) -> None:
    """B018: an assign that was swallowed is not waited for."""
    attached.expect("j1", 7, 100.0)
    attached.expect("j2", 8, 101.0)
    assert attached.overdue(104.9) is None
    assert attached.overdue(105.0) == ("j1", 7)
    attached.accepted("j1", 7)
    assert attached.overdue(105.0) is None
    assert attached.overdue(106.0) == ("j2", 8)


def test_an_acceptance_under_another_lease_is_none(attached: Session) -> None:
    attached.expect("j1", 7, 100.0)
    attached.accepted("j1", 6)
    attached.accepted("j9", 7)
    assert attached.overdue(105.0) == ("j1", 7)


def test_the_next_hand_off_that_is_due_is_the_first_that_is_open(attached: Session) -> None:
    assert attached.due_at() is None
    attached.expect("j1", 7, 100.0)
    attached.expect("j2", 8, 101.0)
    assert attached.due_at() == 105.0
    attached.accepted("j1", 7)
    assert attached.due_at() == 106.0


def test_a_closed_session_owes_nothing(attached: Session) -> None:
    attached.expect("j1", 7, 100.0)
    attached.close()
    assert attached.overdue(1000.0) is None
