"""A home of its own for every test, so that no run is recorded elsewhere."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Journal = Callable[[], list[Any]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FARHAND_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FARHAND_RECORD", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # unrecorded files stay while it does
    return tmp_path / "home"


@pytest.fixture
def journal(home: Path) -> Journal:
    """The lines of the newest journal."""

    def read() -> list[Any]:
        newest = max((home / "inbox").glob("*.jsonl"))
        return [json.loads(line) for line in newest.read_text().splitlines()]

    return read
