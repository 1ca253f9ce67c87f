"""Outcomes of placed calls: where their values are loaded."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farhand import task
from farhand.sdk import encoding, placing
from farhand.sdk.context import Recorder, Run
from farhand.sdk.futures import Future
from farhand.sdk.placing import Placer

VALUE = b"x" * 100_000


class Loaded:
    """Says on which thread it was loaded."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        return _loaded, (self.content,)


def _loaded(content: bytes) -> dict[str, Any]:
    return {"by": threading.current_thread().name, "content": content}


@task(device="gpu")
def far() -> None:
    """Placed."""


def outcome_of(value: Any, blobs: Path) -> dict[str, Any]:
    body, _ = encoding.encode(value, blobs, synced=False)
    return {"state": "completed", "value": body}


def answered(blobs: Path, path_known: bool) -> Any:
    """The value of a call whose outcome names a blob; its file is known, or is asked for."""
    recorder = Recorder()
    recorder.value_path = lambda digest: blobs / digest.split(":")[1]  # type: ignore[method-assign]
    run = Run("r", "f", recorder)
    placer = Placer(run, run.pool)
    future: Future[Any] = Future("key", "far")
    placer._open["key"] = SimpleNamespace(step=far, run=run), future  # type: ignore[assignment]
    outcome = outcome_of(Loaded(VALUE), blobs)
    path = blobs / outcome["value"]["digest"].split(":")[1] if path_known else None
    placer.arrived("key", outcome, path)
    return future.result()


def test_a_value_whose_file_is_known_is_loaded_by_whoever_hears_of_it(tmp_path: Path) -> None:
    assert answered(tmp_path, True) == {"by": threading.current_thread().name, "content": VALUE}


def test_a_value_that_must_be_asked_for_is_loaded_aside(tmp_path: Path) -> None:
    assert answered(tmp_path, False) == {"by": "farhand-load", "content": VALUE}


def test_a_large_value_is_loaded_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "_AT_HAND_BYTES_MAX", 1000)
    assert answered(tmp_path, True) == {"by": "farhand-load", "content": VALUE}
