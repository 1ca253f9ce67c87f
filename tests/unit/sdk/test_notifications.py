"""``notify`` against real servers on loopback: HTTP, and SMTP as far as smtplib speaks it."""

from __future__ import annotations

from collections.abc import Iterator
from email import message_from_bytes
from typing import Any

import pytest

from farhand import flow, notify
from farhand.errors import FarhandError, Usage
from farhand.sdk import notifications
from tests.harness.receivers import Mail, Web

SUMMARY: dict[str, Any] = {
    "id": "01abc",
    "flow": "nightly",
    "state": "failed",
    "reason": "timeout",
    "message": "took too long",
    "params": {"day": "monday"},
    "worker": "box",
    "error": {"type": "TimedOut", "message": "m", "traceback": "Traceback: here"},
}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "_PAUSE_S", 0.0)


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


@pytest.fixture
def mail() -> Iterator[Mail]:
    server = Mail()
    yield server
    server.close()


def test_a_webhook_gets_the_run_and_a_sentence(web: Web) -> None:
    notify(webhook=web.url)(SUMMARY)
    [(path, kind, body)] = web.got
    assert (path, kind) == ("/hook", "application/json")
    assert body["text"] == "nightly failed (timeout): took too long - run 01abc"
    assert body["run"] == SUMMARY


def test_what_the_other_side_could_not_take_is_tried_again(web: Web) -> None:
    web.statuses.extend([503, 429])
    notify(webhook=web.url)(SUMMARY)
    assert len(web.got) == 3


def test_what_it_refuses_is_not_tried_again_and_fails_by_name(web: Web) -> None:
    web.statuses.append(404)
    with pytest.raises(FarhandError, match=r"webhook 127\.0\.0\.1:\d+ did not take it: 404"):
        notify(webhook=web.url)(SUMMARY)
    assert len(web.got) == 1


def test_nobody_there_is_a_failure_after_the_last_try() -> None:
    with pytest.raises(FarhandError, match="could not be told"):
        notify(webhook="http://127.0.0.1:9/hook")(SUMMARY)


def test_an_address_may_be_a_secret(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARHAND_SECRET_CHAT", web.url)
    hook = notify(webhook_secret="chat")
    assert hook.secrets == ["chat"]
    assert str(hook) == "notify webhook chat"
    hook(SUMMARY)
    assert len(web.got) == 1


def test_a_flow_declares_the_secrets_of_its_hooks() -> None:
    body = flow(secrets=["db"], on_failed=notify(webhook_secret="chat"))(lambda: None)
    assert body.settings()["secrets"] == ["chat", "db"]


def test_a_letter_has_the_sentence_the_parameters_and_the_traceback(mail: Mail) -> None:
    notify(email=["me@example.org", "you@example.org"], smtp=mail.address, sender="us@example.org")(SUMMARY)
    [(sender, to, letter)] = mail.letters
    assert "<us@example.org>" in sender
    assert to == ["me@example.org", "you@example.org"]
    message = message_from_bytes(letter)
    assert message["Subject"] == "nightly failed (timeout): took too long - run 01abc"
    text = message.get_payload()
    assert '"day": "monday"' in text
    assert "Traceback: here" in text


def test_addressees_that_are_refused_are_a_failure_at_once() -> None:
    server = Mail(refuses=True)
    try:
        with pytest.raises(FarhandError, match=r"e-mail to me@example\.org did not take it"):
            notify(email="me@example.org", smtp=server.address)(SUMMARY)
    finally:
        server.close()


def test_a_password_comes_from_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARHAND_SECRET_MAIL", "pass")
    server = Mail(wants="AHVzZXIAcGFzcw==")
    try:
        notify(email="me@example.org", smtp=server.address, user="user", password_secret="mail")(SUMMARY)
        assert len(server.letters) == 1
    finally:
        server.close()


def test_a_failing_script_notifies(web: Web) -> None:
    @flow(on_failed=notify(webhook=web.url))
    def fails(day: str) -> None:
        raise ValueError("as asked")

    with pytest.raises(ValueError, match="as asked"):
        fails("monday")
    [(_, _, body)] = web.got
    assert body["run"]["params"] == {"day": "monday"}
    assert body["text"].startswith("fails failed (exception): ValueError: as asked")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"webhook": "example.org"},
        {"webhook": "https://a", "webhook_secret": "b"},
        {"email": "me@example.org"},
        {"email": "nobody", "smtp": "host"},
        {"email": "me@example.org", "smtp": "host:port"},
        {"email": "me@example.org", "smtp": "host", "user": "me"},
        {"smtp": "host"},
    ],
)
def test_what_cannot_be_told_is_refused_at_decoration(options: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        notify(**options)
