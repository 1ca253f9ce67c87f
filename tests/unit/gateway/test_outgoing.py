"""What is sent when: once whoever had several things to say is done, and in the order of what was said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anyio import wait_all_tasks_blocked

from farhand.engine.turn import Turn
from farhand.gateway import outgoing as outgoing_module
from farhand.gateway.outgoing import LINGER_S, Outgoing
from farhand_worker import protocol
from tests.unit.engine.records import a_hello
from tests.unit.engine.world import World
from tests.unit.gateway.gateways import (
    COMPLETED,
    ORDERLY,
    STARTED,
    FakeWebSocket,
    Gateway,
    a_line,
    an_event,
)

pytestmark = pytest.mark.anyio


def texts(*numbers: int) -> list[str]:
    return [protocol.encode(protocol.Ack(n=number)) for number in numbers]


def outgoing(websocket: FakeWebSocket, turn: Turn, direct: bool = True) -> Outgoing:
    end: Any = websocket
    found = Outgoing(end, end if direct else None, turn)
    found.several = True
    return found


async def test_what_is_said_within_an_outbox_is_sent_when_it_is_left_in_one_frame_after_the_first() -> None:
    websocket, turn = FakeWebSocket(), Turn()
    sending = outgoing(websocket, turn)
    with turn:
        for text in texts(1, 2, 3):
            sending.put(text)
        assert websocket.frames == []
    assert websocket.frames == [*texts(1), protocol.encode_several(texts(2, 3))]


async def test_what_is_said_elsewhere_is_sent_in_the_next_turn() -> None:
    websocket = FakeWebSocket()
    sending = outgoing(websocket, Turn())
    for text in texts(1, 2):
        sending.put(text)
    assert websocket.frames == []
    await asyncio.sleep(0)
    assert websocket.frames == texts(1, 2)


async def test_an_outbox_is_left_by_an_error_as_well() -> None:
    websocket, turn = FakeWebSocket(), Turn()
    sending = outgoing(websocket, turn)

    def failing() -> None:
        with turn:
            sending.put(texts(1)[0])
            raise ValueError("whatever")

    with pytest.raises(ValueError, match="whatever"):
        failing()
    assert websocket.frames == texts(1)


async def test_a_connection_that_takes_nothing_more_is_waited_for_and_nothing_is_passed() -> None:
    websocket, turn, seen = FakeWebSocket(), Turn(), list[str]()
    go_on = asyncio.Event()

    async def slowly(text: str) -> None:
        seen.append(text)
        await go_on.wait()

    websocket.send_text = slowly  # type: ignore[method-assign]
    sending = outgoing(websocket, turn)
    carrying = asyncio.create_task(sending.carry())
    with turn:
        websocket.ready = False
        sending.put(texts(1)[0])
    await wait_all_tasks_blocked()
    with turn:
        websocket.ready = True
        sending.put(texts(2)[0])
    assert (seen, websocket.frames) == (texts(1), []), "the first one is still under way"
    go_on.set()
    await wait_all_tasks_blocked()
    with turn:
        sending.put(texts(3)[0])
        sending.close(ORDERLY, "done")
    await carrying
    assert seen == texts(1, 2)
    assert websocket.frames == texts(3)
    assert websocket.closed == (ORDERLY, "done")


async def test_what_nobody_waits_for_goes_with_what_is_said_next_and_after_it() -> None:
    websocket, turn = FakeWebSocket(), Turn()
    sending = outgoing(websocket, turn)
    with turn:
        sending.put(texts(0)[0])
    with turn:
        sending.put_later(texts(1)[0])
    assert websocket.frames == texts(0)
    with turn:
        sending.put(texts(2)[0])
    assert websocket.frames == [*texts(0), protocol.encode_several(texts(2, 1))]
    await asyncio.sleep(2 * LINGER_S)
    assert len(websocket.frames) == 2, "it is sent once"


async def test_what_nobody_waits_for_is_sent_soon_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    websocket = FakeWebSocket()
    sending = outgoing(websocket, Turn())
    monkeypatch.setattr(outgoing_module, "LINGER_S", 0.001)
    sending.put_later(texts(1)[0])
    assert await websocket.hear() == protocol.Ack(n=1)


async def test_what_lingers_is_sent_together_and_at_once_to_a_worker_that_reads_one_a_frame() -> None:
    websocket, turn = FakeWebSocket(), Turn()
    sending = outgoing(websocket, turn)
    with turn:
        sending.put(texts(0)[0])
    with turn:
        sending.put_later(texts(1)[0])
    with turn:
        sending.put_later(texts(2)[0])
    assert websocket.frames == texts(0)
    with turn:
        sending.put(texts(3)[0])
    assert websocket.frames[1:] == [protocol.encode_several(texts(3, 1, 2))]
    sending.several = False
    with turn:
        sending.put_later(texts(4)[0])
    assert websocket.frames[2:] == texts(4)


async def test_what_lingers_after_a_frame_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer that the one before it has begun goes on."""
    websocket, turn = FakeWebSocket(), Turn()
    sending = outgoing(websocket, turn)
    monkeypatch.setattr(outgoing_module, "LINGER_S", 0.005)
    sending.put_later(texts(1)[0])
    monkeypatch.setattr(outgoing_module, "LINGER_S", 0.05)
    with turn:
        sending.put(texts(2)[0])
    began = asyncio.get_running_loop().time()
    sending.put_later(texts(3)[0])
    assert [await websocket.hear() for _ in range(3)] == [protocol.Ack(n=n) for n in (2, 1, 3)]
    assert asyncio.get_running_loop().time() - began >= 0.05


@pytest.mark.parametrize("direct", [True, False])
async def test_all_that_was_said_is_sent_before_the_close(direct: bool) -> None:
    websocket, turn = FakeWebSocket(), Turn()
    sending = outgoing(websocket, turn, direct)
    carrying = asyncio.create_task(sending.carry())
    for text in texts(1):
        sending.put(text)
    sending.put_later(texts(2)[0])
    sending.close(ORDERLY, "done")
    await carrying
    assert [await websocket.outgoing.get() for _ in range(3)] == [
        protocol.Ack(n=1),
        protocol.Ack(n=2),
        (ORDERLY, "done"),
    ]


# ---------------------------------------------------------------- as a session uses it


async def test_a_report_is_with_the_writer_before_the_next_frame_is_looked_at(
    gateway: Gateway, world: World
) -> None:
    websocket, job = await gateway.with_job()
    await gateway.answered(websocket)
    await wait_all_tasks_blocked()
    submit, submitted = world.store.database.submit, list[Any]()

    def noting(operation: Any) -> Any:
        submitted.append(operation)
        return submit(operation)

    world.store.database.submit = noting  # type: ignore[method-assign]
    websocket.say(an_event(job, 1, STARTED))
    websocket.say(an_event(job, 2, a_line("x")))
    assert len(submitted) == (2 if gateway.direct else 0), "no task is waited for"
    await websocket.hear(protocol.Ack)
    assert len(submitted) == 2


async def test_the_acknowledgement_of_an_end_comes_with_what_is_said_next(
    gateway: Gateway, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_module, "LINGER_S", 60.0)
    websocket = await gateway.attached(several=True)
    job = await world.start_run()
    await world.hand_over()
    assert (await websocket.hear(protocol.Assign)).job == job.id
    job = await world.job(job)
    websocket.say(an_event(job, 1, STARTED))
    assert (await websocket.hear(protocol.Ack)).seq == 1, "what else is reported is acknowledged at once"
    websocket.say(protocol.encode_events(job.id, job.lease or 0, "engine", 2, [protocol.dumps(COMPLETED)]))
    await wait_all_tasks_blocked()
    await world.store.database.write(lambda _: None)
    assert (await world.run_of(job)).state == "completed"
    frames = len(websocket.frames)
    websocket.say(protocol.Heartbeat(7))
    heard = [await websocket.hear(protocol.Ack) for _ in range(2)]
    assert [(ack.n, ack.seq) for ack in heard] == [(7, None), (None, 2)]
    assert len(websocket.frames) == frames + 1


async def test_what_follows_from_a_commit_is_sent_in_the_turn_in_which_it_is_heard_of(
    gateway: Gateway, world: World
) -> None:
    gateway.direct = True
    websocket, job = await gateway.with_job()
    sent = list[int]()
    submit = world.store.database.submit

    def noting(operation: Any) -> Any:
        answer = submit(operation)
        before = len(websocket.frames)
        answer.follow(lambda _: asyncio.get_running_loop().call_soon(note, before))
        return answer

    def note(before: int) -> None:
        sent.append(len(websocket.frames) - before)

    world.store.database.submit = noting  # type: ignore[method-assign]
    websocket.say(an_event(job, 1, STARTED, COMPLETED))
    assert (await websocket.hear(protocol.Ack)).seq == 2
    await asyncio.sleep(0)
    assert sent == [1]


async def test_frames_that_come_while_a_hello_is_looked_at_are_taken_after_it_in_their_order(
    gateway: Gateway, world: World
) -> None:
    websocket, job = await gateway.with_job()
    websocket.drop()
    await gateway.ended()
    again = gateway.dial()
    lines = [an_event(job, 2 + n, a_line(str(n))) for n in range(3)]
    again.say(a_hello(held=[world.held(job)]), an_event(job, 1, STARTED), lines[0])
    await asyncio.sleep(0)
    again.say(*lines[1:], protocol.Bye("stopped"))
    acks = [await again.hear(protocol.Ack) for _ in range(4)]
    assert [ack.seq for ack in acks] == [1, 2, 3, 4]
    await gateway.ended()
    assert [line.text for line in (await world.store.logs.page(job.run)).items] == ["0", "1", "2"]
