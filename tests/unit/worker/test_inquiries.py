"""What the agent asks for itself is answered once, whatever session brings the answer."""

from __future__ import annotations

import asyncio

import pytest

from farhand_worker.inquiries import Inquiries, NotAnswered
from farhand_worker.protocol import Reply, Request
from farhand_worker.transfer import Claim

pytestmark = pytest.mark.anyio

CLAIM = Claim("job", 7)


async def begun(asking: Inquiries, claim: Claim = CLAIM) -> asyncio.Task[dict[str, object]]:
    task = asyncio.ensure_future(asking.ask(claim, "laid", {"size": 1}))
    await asyncio.sleep(0)
    return task


async def test_a_reply_goes_to_who_asked_and_those_of_engines_to_nobody_here() -> None:
    sent: list[Request] = []
    asking = Inquiries(sent.append)
    first, second = await begun(asking), await begun(asking)
    assert [(request.job, request.lease, request.kind, request.args) for request in sent] == [
        ("job", 7, "laid", {"size": 1})
    ] * 2
    assert not asking.answered(Reply("1", "job", 7, body={}))
    assert asking.answered(Reply(sent[1].id, "job", 7, body={"settled": True}))
    assert await second == {"settled": True}
    assert asking.answered(Reply(sent[0].id, "job", 7, error="it is not there", code="not_found"))
    with pytest.raises(NotAnswered, match="it is not there") as told:
        await first
    assert (told.value.code, told.value.final) == ("not_found", False)


async def test_what_a_session_left_open_is_asked_by_the_next_and_a_second_answer_changes_nothing() -> None:
    sent: list[Request] = []
    asking = Inquiries(sent.append)
    task = await begun(asking)
    asking.ask_again()
    assert sent[0] == sent[1]
    for body in ({"settled": True}, {"settled": False}):
        assert asking.answered(Reply(sent[0].id, "job", 7, body=body))
    assert await task == {"settled": True}
    asking.ask_again()
    assert len(sent) == 2


async def test_nobody_waits_for_the_answer_to_a_job_that_is_not_ours_any_more() -> None:
    asking = Inquiries(lambda _: None)
    gone, other = await begun(asking), await begun(asking, Claim("job", 8))
    asking.forget(CLAIM)
    with pytest.raises(NotAnswered, match="not ours"):
        await gone
    assert not other.done()
    other.cancel()
