"""What is said within a turn is sent before the rest is done."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from farhand.engine.turn import Turn

pytestmark = pytest.mark.anyio


class Said:
    """One who sends, and what was done in which order."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def flush(self) -> None:
        self.order.append("sent")

    def note(self, what: str) -> None:
        self.order.append(what)


async def test_the_rest_is_done_in_its_order_once_all_is_sent() -> None:
    turn, said = Turn(), Said()
    with turn:
        turn.afterwards(partial(said.note, "first"))
        turn.send(said)
        turn.afterwards(partial(said.note, "second"))
        said.note("gathered")
    assert said.order == ["gathered", "sent", "first", "second"]


async def test_where_nothing_is_gathered_the_rest_is_done_at_once() -> None:
    turn, said = Turn(), Said()
    turn.send(said)
    turn.afterwards(partial(said.note, "done"))
    assert said.order == ["done"]
    await asyncio.sleep(0)
    assert said.order == ["done", "sent"]


async def test_what_the_rest_says_and_puts_off_is_seen_to_before_the_turn_is_left() -> None:
    turn, said = Turn(), Said()

    def say_more() -> None:
        said.note("more")
        turn.send(said)
        turn.afterwards(partial(said.note, "last"))

    with turn:
        turn.afterwards(say_more)
    assert said.order == ["more", "last", "sent"]


async def test_one_that_fails_is_told_and_keeps_nobody_else_from_it() -> None:
    turn, said, told = Turn(), Said(), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    with turn:
        turn.afterwards(lambda: said.order.index("nothing"))
        turn.afterwards(partial(said.note, "done"))
    assert said.order == ["done"]
    assert [type(error) for error in told] == [ValueError]


async def test_one_that_cannot_send_keeps_nobody_else_from_sending_nor_the_turn_from_its_end() -> None:
    class Broken(Said):
        def flush(self) -> None:
            raise OSError("the connection is gone")

    turn, broken, said, told = Turn(), Broken(), Said(), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    with turn:
        turn.send(broken)
        turn.send(said)
        turn.afterwards(partial(said.note, "done"))
    turn.afterwards(partial(said.note, "at once, as nothing is gathered any more"))
    assert said.order == ["sent", "done", "at once, as nothing is gathered any more"]
    assert [type(error) for error in told] == [OSError]
