"""What is said of an attempt that the agent ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farhand.sdk import declared, documents
from farhand_worker.fates import exit_of
from farhand_worker.protocol import Assign, Exit

OTHERWISE = Exit(1.0, "crashed", "signal 9", signal=9)


def _assign(settings: dict[str, Any]) -> Assign:
    return Assign("j", 7, 1, "call", "r", "train", "m:f", {}, "", timeout_s=60.0, settings=settings)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("timeout", "ran longer than its timeout of 60 s and did not end by itself"),
        ("silence", "was silent for longer than its silence_timeout of 30 s and did not end by itself"),
    ],
)
def test_a_limit_is_told_in_the_general_words(reason: str, said: str) -> None:
    told = exit_of(_assign({"silence_timeout_s": 30.0}), reason, OTHERWISE)
    assert (told.reason, told.message) == (reason, said)


@pytest.mark.parametrize(("kind", "reason"), [("call", "crashed"), ("service", "stopped")])
def test_a_warden_that_ended_is_no_failed_start_of_a_service(kind: str, reason: str) -> None:
    told = exit_of(replace(_assign({}), kind=kind), "warden", OTHERWISE)
    assert (told.reason, told.message) == (reason, "the warden ended")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("timeout", "'w{1}' took longer than its duration_timeout of 60 s"),
        ("silence", "'w{1}' reported nothing for 30 s"),
        ("cancelled", "cancelled"),
    ],
)
def test_a_limit_of_a_job_that_has_words_for_it_is_told_in_those(reason: str, said: str) -> None:
    own = {
        "timeout_words": "'w{1}' took longer than its duration_timeout of 60 s",
        "silence_words": "'w{1}' reported nothing for 30 s",
    }
    told = exit_of(_assign({"silence_timeout_s": 30.0, **own}), reason, OTHERWISE)
    assert (told.reason, told.message) == (reason, said)


def test_the_settings_of_a_declared_node_have_the_sentences_that_its_engine_says() -> None:
    node = {"id": "w1", "type": "python", "source": "def process(): pass", "timeout": 30, "provides": ["x"]}
    document = documents.read({"nodes": [node], "outputs": ["x"]}, lambda source, member: [])
    settings = declared.steps_of(document)["w1"].settings_of_call()
    assert settings["silence_words"] == "'w1' reported nothing for 30 s"
    assert settings["timeout_words"] == "", "a limit that it has not"
