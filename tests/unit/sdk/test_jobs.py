"""What an engine hears of a job while it is about to begin it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from farhand.sdk import jobs
from farhand.sdk.jobs import Engine

HEADER = {"type": "job", "bundle_dir": ""}


class _Job:
    """A job that is cancelled while it is made: its agent said so right behind it."""

    heard: Any = None
    stopped = False

    def __init__(self, *_: Any) -> None:
        self.cancelled: list[str] = []
        if self.heard is not None:
            self.heard()

    def cancel(self, reason: str) -> None:
        self.cancelled.append(reason)

    def run(self, _: Any) -> bool:
        made.append(self)
        return False


made: list[_Job] = []


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(jobs, "Job", _Job)
    monkeypatch.setattr(Engine, "_enter_bundle", lambda *_: Path())
    made.clear()
    engine = Engine(os.dup(theirs.fileno()))
    ours.close()
    theirs.close()
    monkeypatch.setattr(engine, "_channel", type("Deaf", (), {"send": lambda *_, **__: None})())
    return engine


def test_a_cancel_that_comes_while_a_job_is_made_is_not_lost(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has left the queue by then, and is not there yet."""
    monkeypatch.setattr(_Job, "heard", lambda _: engine._on_cancel({"reason": "cancelled"}))
    engine._on_job(HEADER)
    engine._execute(engine._jobs.get() or {})
    assert made[0].cancelled == ["cancelled"]


def test_a_cancel_of_a_job_that_has_ended_strikes_no_other(engine: Engine) -> None:
    engine._on_job(HEADER)
    engine._execute(engine._jobs.get() or {})
    engine._on_cancel({"reason": "cancelled"})
    engine._on_job(HEADER)
    engine._execute(engine._jobs.get() or {})
    assert [job.cancelled for job in made] == [[], []]


def test_a_cancel_that_comes_behind_a_job_that_waits_is_for_that(engine: Engine) -> None:
    engine._on_job(HEADER)
    engine._on_cancel({"reason": "timeout"})
    engine._execute(engine._jobs.get() or {})
    assert made[0].cancelled == ["timeout"]
