"""Questions that are answered later: asked until there is an answer, dropped with their job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from farhand.sdk import questions
from farhand.sdk.questions import REFUSED, Questions

Answer = dict[str, Any]


class Channel:
    """Keeps what was asked, and gives the replies that a test wants."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Answer, Callable[[Answer], None]]] = []
        self.forgotten = 0

    def request_later(self, kind: str, args: Answer, arrived: Callable[[Answer], None]) -> Callable[[], None]:
        self.asked.append((kind, args, arrived))

        def forget() -> None:
            self.forgotten += 1

        return forget

    def reply(self, **header: Any) -> None:
        """Answer what was asked last."""
        self.asked[-1][2](header)


def asked(channel: Channel) -> tuple[Questions, list[Answer]]:
    """A question on its way, and where its answer goes."""
    answers = list[Answer]()
    made = Questions(channel.request_later, lambda deliver: deliver())
    made.ask("stream", {"key": "k"}, answers.append)
    return made, answers


def test_a_question_is_asked_again_until_there_is_an_answer() -> None:
    channel = Channel()
    open_ones, answers = asked(channel)
    channel.reply(body={"again": True})
    channel.reply(body={"again": True})
    assert (open_ones.open, answers) == (True, [])
    channel.reply(body={"state": "open"})
    assert [args for _, args, _ in channel.asked] == [{"key": "k"}] * 3
    assert (open_ones.open, answers) == (False, [{"state": "open"}])


def test_a_refusal_is_an_answer() -> None:
    channel = Channel()
    _, answers = asked(channel)
    channel.reply(error="no such thing", code="not_found")
    assert answers == [{"state": REFUSED, "message": "no such thing"}]


def test_a_server_that_is_stopping_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = list[Callable[[], None]]()
    monkeypatch.setattr(questions.watcher, "after", lambda _, function: timers.append(function))
    channel = Channel()
    open_ones, answers = asked(channel)
    channel.reply(error="the server is stopping", code="store_closed")
    assert (open_ones.open, answers, len(channel.asked)) == (True, [], 1)
    timers[0]()
    assert len(channel.asked) == 2
    channel.reply(error="the server is stopping", code="store_closed")
    open_ones.close()
    timers[1]()
    assert len(channel.asked) == 2


def test_what_is_answered_after_the_end_of_the_job_is_dropped() -> None:
    channel = Channel()
    open_ones, answers = asked(channel)
    open_ones.close()
    channel.reply(body={"again": True})
    channel.reply(body={"state": "open"})
    open_ones.ask("stream", {}, answers.append)
    assert (answers, len(channel.asked), channel.forgotten, open_ones.open) == ([], 1, 1, False)


def test_an_answer_waits_until_the_job_may_go_on() -> None:
    channel, held = Channel(), list[Callable[[], None]]()
    answers = list[Answer]()
    made = Questions(channel.request_later, held.append)
    made.ask("stream", {}, answers.append)
    channel.reply(body={"state": "open"})
    assert answers == []
    held[0]()
    assert answers == [{"state": "open"}]
