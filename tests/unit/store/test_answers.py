"""What comes of an operation: awaited, followed at once, and changed on its way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from farhand.store.answers import Answer, failed, succeeded

pytestmark = pytest.mark.anyio


async def test_those_who_follow_are_called_at_once_and_in_their_order() -> None:
    answer, seen = Answer[int](), list[Any]()
    answer.follow(lambda found: seen.append(("first", found.result())))
    answer.follow(lambda found: seen.append(("second", found.result())))
    answer.succeed(3)
    answer.follow(lambda found: seen.append(("late", found.result())))
    assert seen == [("first", 3), ("second", 3), ("late", 3)]


async def test_an_error_is_raised_by_whoever_takes_the_result() -> None:
    with pytest.raises(KeyError):
        failed(KeyError("gone")).result()
    with pytest.raises(KeyError):
        await failed(KeyError("gone"))


async def test_an_answer_can_be_awaited_before_it_comes_and_after() -> None:
    answer = Answer[str]()
    waiting = [asyncio.ensure_future(answer) for _ in range(2)]
    await asyncio.sleep(0)
    answer.succeed("here")
    assert await asyncio.gather(*waiting) == ["here", "here"]
    assert await answer == "here"


async def test_one_who_gives_up_waiting_is_passed_over() -> None:
    answer = Answer[str]()
    gone, other = asyncio.ensure_future(answer), asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    answer.succeed("here")
    assert await other == "here"
    assert gone.cancelled()


async def test_what_is_made_of_an_answer_comes_with_it() -> None:
    answer = Answer[int]()
    doubled = answer.then(lambda found: found.result() * 2)
    assert not doubled.done
    answer.succeed(4)
    assert doubled.result() == 8


async def test_an_error_goes_on_to_what_is_made_of_it_unless_that_knows_better() -> None:
    def mended(found: Answer[int]) -> int:
        try:
            return found.result()
        except KeyError:
            return 0

    assert failed(KeyError()).then(mended).result() == 0
    with pytest.raises(ValueError, match="no"):
        failed(ValueError("no")).then(mended).result()


async def test_an_answer_may_become_another_that_comes_later() -> None:
    second = Answer[int]()
    found = succeeded(1).then(lambda _: second)
    assert not found.done
    second.succeed(2)
    assert found.result() == 2


async def test_what_one_follower_raises_is_told_and_keeps_nobody_else_from_the_answer() -> None:
    told, seen, answer = list[Any](), list[int](), Answer[int]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    error = RuntimeError("a mistake")

    def mistaken(_: Answer[int]) -> None:
        raise error

    answer.follow(mistaken)
    answer.follow(lambda found: seen.append(found.result()))
    answer.succeed(1)
    assert (told, seen) == ([error], [1])


async def test_an_error_for_which_there_is_another_answer_is_not_heard_of() -> None:
    answer, other, seen = Answer[int](), Answer[int](), list[Any]()
    answer.or_else(lambda error: other if isinstance(error, KeyError) else None)
    answer.follow(lambda found: seen.append(found.result()))
    answer.fail(KeyError("gone"))
    assert seen == []
    other.succeed(3)
    assert seen == [3]


@pytest.mark.parametrize("mended", [False, True])
async def test_any_other_error_is_the_answer(mended: bool) -> None:
    answer, other = Answer[int](), Answer[int]()
    answer.or_else(lambda error: other if isinstance(error, KeyError) else None)
    answer.fail(KeyError("gone") if mended else ValueError("other"))
    other.fail(ValueError("other"))
    with pytest.raises(ValueError, match="other"):
        await answer
