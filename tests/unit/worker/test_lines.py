"""Attempts that share a slot begin one after another, and nobody waits behind what takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from farhand_worker.lines import Line, Lines
from farhand_worker.protocol import Assign

pytestmark = pytest.mark.anyio


def an_assign(lease: int, behind: int | None = None) -> Assign:
    return Assign(f"j{lease}", lease, 1, "call", "r", "f", "m:f", {}, "sha256:0", behind=behind)


@dataclass(eq=False)
class Waiter:
    assign: Assign
    blocked: bool = False
    returned: str = ""
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        self.begun.set()

    def give_back(self, why: str) -> None:
        self.returned = why

    @property
    def runs(self) -> bool:
        return self.begun.is_set() and not self.returned


def joined(lines: Lines, count: int) -> tuple[Line, list[Waiter]]:
    """A line of that many, of which the first has the slot."""
    waiters = [Waiter(an_assign(1))] + [Waiter(an_assign(n, behind=1)) for n in range(2, count + 1)]
    found = [lines.of(waiter.assign) for waiter in waiters[:1]]
    found[0].join(waiters[0])
    for waiter in waiters[1:]:
        lines.of(waiter.assign).join(waiter)
    return found[0], waiters


async def test_each_begins_when_the_one_before_it_is_done() -> None:
    lines = Lines(lambda: 60.0)
    line, (first, second, third) = joined(lines, 3)
    assert [each.runs for each in (first, second, third)] == [True, False, False]
    line.leave(first)
    assert [each.runs for each in (second, third)] == [True, False]
    assert lines.followed
    line.leave(second)
    assert third.runs
    assert line.busy
    assert not lines.followed
    line.leave(third)
    assert not line.busy


async def test_what_is_handed_over_for_a_slot_that_is_free_by_now_begins_at_once() -> None:
    lines = Lines(lambda: 60.0)
    line, (first,) = joined(lines, 1)
    line.leave(first)
    late = Waiter(an_assign(9, behind=1))
    again = lines.of(late.assign)
    again.join(late)
    assert late.runs
    assert lines.of(an_assign(10, behind=1)) is again


async def test_attempts_that_are_not_behind_another_have_a_slot_each() -> None:
    lines = Lines(lambda: 60.0)
    one, other = Waiter(an_assign(1)), Waiter(an_assign(1))
    for waiter in (one, other):
        lines.of(waiter.assign).join(waiter)
    assert one.runs
    assert other.runs


async def test_one_that_waits_and_is_to_end_leaves_the_others_waiting() -> None:
    line, (first, second, third) = joined(Lines(lambda: 60.0), 3)
    line.leave(second)
    assert second.begun.is_set()
    assert not third.begun.is_set()
    line.leave(first)
    assert third.runs


async def test_all_that_wait_are_given_back_when_the_first_takes_long() -> None:
    _, (first, second, third) = joined(Lines(lambda: 0.01), 3)
    await asyncio.wait_for(asyncio.gather(second.begun.wait(), third.begun.wait()), 10)
    assert not first.returned
    assert second.returned == third.returned == "the one before it on its slot takes long"


async def test_a_line_that_goes_on_gives_nobody_back() -> None:
    line, waiters = joined(Lines(lambda: 60.0), 3)
    line._look_again()
    line.leave(waiters[0])
    line._look_again()
    assert waiters[1].runs
    assert not waiters[2].begun.is_set()
    line._look_again()
    assert waiters[2].returned


def blocks(line: Line, first: Waiter) -> None:
    first.blocked = True
    line.look()


def dies(line: Line, first: Waiter) -> None:
    line.leave(first, "its engine ended")


def is_drained(line: Line, _: Waiter) -> None:
    line.give_back("drained")


@pytest.mark.parametrize(
    ("happens", "why"),
    [(blocks, "waits for calls of its own"), (dies, "its engine ended"), (is_drained, "drained")],
)
async def test_what_keeps_the_slot_from_them_gives_them_back_at_once(
    happens: Callable[[Line, Waiter], None], why: str
) -> None:
    line, (first, second, third) = joined(Lines(lambda: 60.0), 3)
    happens(line, first)
    assert why in second.returned
    assert why in third.returned
    assert second.begun.is_set()


async def test_who_comes_behind_a_blocked_one_is_given_back_at_once() -> None:
    lines = Lines(lambda: 60.0)
    _, (first,) = joined(lines, 1)
    first.blocked = True
    late = Waiter(an_assign(5, behind=1))
    lines.of(late.assign).join(late)
    assert late.returned


async def test_a_line_that_nobody_joined_is_forgotten_and_one_with_somebody_is_not() -> None:
    lines = Lines(lambda: 60.0)
    unused = lines.of(an_assign(3))
    lines.forget(an_assign(3))
    assert lines.of(an_assign(4, behind=3)) is not unused
    line, _ = joined(lines, 1)
    lines.forget(an_assign(2, behind=1))
    assert lines.of(an_assign(2, behind=1)) is line
