"""Secrets and variables of scripts, and what is written of them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from farhand import flow, get_logger, secret, task, variable
from farhand.errors import Forbidden, NotFound, NotSerializable
from farhand.sdk.inspection import described
from farhand.sdk.secrets import LineMask
from farhand.sdk.steps import declared_by
from farhand_worker.masking import MASK, Masker
from tests.unit.sdk.conftest import Journal

VALUE = "hunter22-and-more"


@pytest.fixture(autouse=True)
def db(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARHAND_SECRET_DB", VALUE)


def test_outside_of_a_run_it_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert secret("db") == VALUE
    with pytest.raises(NotFound, match="set FARHAND_SECRET_NO_SUCH"):
        secret("no-such")
    monkeypatch.setenv("FARHAND_VARIABLE_LIMITS", '{"rows": 3}')
    monkeypatch.setenv("FARHAND_VARIABLE_REGION", "eu-west")
    assert variable("limits") == {"rows": 3}
    assert variable("region") == "eu-west"


def test_a_run_reads_only_what_it_declares() -> None:
    @flow
    def careless() -> str:
        return secret("db")

    with pytest.raises(Forbidden, match="does not declare the secret 'db'"):
        careless()


@task(secrets=["db"])
def reads() -> int:
    return len(secret("db"))


def helper() -> int:
    return reads()


@flow(secrets="other")
def far_away() -> int:
    return helper()


def test_a_flow_declares_what_its_code_names_however_far_away() -> None:
    assert declared_by(far_away) == ["db", "other"]
    assert described(far_away, "f.py")["settings"]["secrets"] == ["db", "other"]
    assert far_away() == len(VALUE)


def test_nothing_that_a_run_writes_holds_a_secret_it_has_read(journal: Journal) -> None:
    @task
    def returns_it() -> dict[str, str]:
        return {"password": VALUE}

    @flow(secrets=["db"])
    def leaks() -> list[str]:
        value = secret("db")
        print(f"the password is {value}!")
        print(value[:6], end="")
        print(value[6:])
        print(base64.b64encode(f"user:{value}".encode()).decode())
        get_logger().warning("https://user:%s@host", value)
        returns_it()
        return [value]

    leaks()
    lines = journal()
    text = "\n".join(map(json.dumps, lines))
    assert not Masker().finds(text)
    mask = Masker()
    mask.add(VALUE)
    assert not mask.finds(text)
    logs = [body["text"] for kind, body in lines if kind == "log"]
    assert f"the password is {MASK}!" in logs
    assert MASK in logs, "split over two writes"
    [result] = [body for kind, body in lines if kind == "result"]
    assert json.loads(result["value"]["text"]) == [MASK]
    [checkpoint] = [body for kind, body in lines if kind == "checkpoint"]
    assert checkpoint["kept"] is False


def test_an_exception_is_masked_with_its_traceback_and_not_pickled(journal: Journal) -> None:
    @flow(secrets=["db"])
    def leaks() -> None:
        raise ValueError(f"cannot sign in as root:{secret('db')}")

    with pytest.raises(ValueError, match=VALUE):
        leaks()
    [result] = [body for kind, body in journal() if kind == "result"]
    assert result["message"] == f"ValueError: cannot sign in as root:{MASK}"
    assert MASK in result["error"]["traceback"]
    assert "pickle" not in result["error"]


def test_a_result_of_another_form_is_left_out(journal: Journal) -> None:
    @flow(secrets=["db"])
    def leaks() -> tuple[str, ...]:
        return (secret("db"),)

    leaks()
    [result] = [body for kind, body in journal() if kind == "result"]
    assert result["value"] == {"enc": "json", "text": "null"}


def test_a_large_result_is_left_out_with_its_file(journal: Journal, home: Any) -> None:
    @flow(secrets=["db"])
    def leaks() -> str:
        return "x" * 100_000 + secret("db")

    leaks()
    assert list((home / "inbox" / "blobs").iterdir()) == []


def test_a_long_line_is_masked_before_it_is_cut(journal: Journal) -> None:
    @flow(secrets=["db"])
    def leaks() -> None:
        value = secret("db")
        print("x" * (32 * 1024 - 8) + value + "y" * 100)

    leaks()
    [line] = [body["text"] for kind, body in journal() if kind == "log"]
    assert "hunter" not in line


def test_an_event_stays_an_event_whatever_the_secret_is() -> None:
    mask = Masker()
    for value in ("completed", "1234", "checkpoint", "abcd"):
        mask.add(value)
    line = (
        '["checkpoint",{"key":"abcd1234","name":"completed","state":"completed","started_at":1234.5,'
        '"ended_at":1234.75,"value":{"enc":"json","text":"{\\"abcd\\":1234}"}}]\n'
    )
    kind, body = json.loads(LineMask(mask)(line))
    assert (kind, body["key"], body["state"], body["started_at"]) == (
        "checkpoint",
        "abcd1234",
        "completed",
        1234.5,
    )
    assert json.loads(body["value"]["text"]) == {MASK: MASK}


def test_not_serializable_is_what_a_secret_argument_of_a_placed_call_meets() -> None:
    from farhand.sdk import placing
    from farhand.sdk.context import Recorder, Run

    run = Run("r", "f", Recorder())
    run.masker = Masker()
    run.masker.add(VALUE)

    class Made:
        step = reads

    Made.run = run  # type: ignore[attr-defined]
    with pytest.raises(NotSerializable, match="holds a secret"):
        placing._refuse_secrets(Made(), {"enc": "json", "text": json.dumps([VALUE])})  # type: ignore[arg-type]


@task(process=True, secrets=["db"])
def in_a_child() -> int:
    value = secret("db")
    print("child:", value)
    return len(value)


@flow
def asks_in_a_child() -> int:
    return in_a_child()


@task(process=True)
def careless_child() -> str:
    return secret("db")


@flow
def asks_undeclared_in_a_child() -> str:
    return careless_child()


def test_a_process_task_gets_a_secret_through_its_flow_and_is_masked(journal: Journal) -> None:
    assert asks_in_a_child() == len(VALUE)
    assert f"child: {MASK}" in [body["text"] for kind, body in journal() if kind == "log"]
    with pytest.raises(Forbidden, match="does not declare"):
        asks_undeclared_in_a_child()
