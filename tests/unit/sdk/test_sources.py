"""The entries of nodes' sources: which are awaited, which are refused, and what they deliver."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farhand.errors import CannotLoad, NotDelivered
from farhand.sdk import sources
from farhand.sdk.graphs import Member, Output
from farhand.sdk.reading import is_awaited

Load = Callable[..., Any]


def member(*provides: Output) -> Member:
    """A node called n that requires nothing."""
    return Member("n", (), provides)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a source as a node's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "source_of_n", raising=False)

    def loaded(source: str) -> Any:
        (tmp_path / "source_of_n.py").write_text(source)
        return sources.load("n", "source_of_n", awaited=is_awaited(source))

    return loaded


@pytest.mark.parametrize(
    ("source", "awaited"),
    [
        ("async def process(): pass", True),
        ("async def only(): pass\ndef _other(): pass", True),
        ("async def helper(): pass\ndef process(): pass", False),
        ("def process(): pass", False),
        ("def process(): return 'async'", False),
        ("async def one(): pass\nasync def two(): pass", False),
        ("async def given(): pass\nprocess = given", False),
        ("async def process(:", False),
    ],
)
def test_an_entry_that_is_written_as_async_def_is_awaited(source: str, awaited: bool) -> None:
    assert is_awaited(source) is awaited


def test_what_an_awaited_entry_returns_is_delivered(load: Load) -> None:
    entry = load("async def process(x):\n    return {'y': x + 1}\n")
    assert asyncio.run(sources.awaited(member(Output("y", "int")), entry, x=1)) == {"y": 2}


def test_a_decorator_may_have_made_an_awaited_entry_a_plain_function(load: Load) -> None:
    entry = load(
        "def now(f):\n    def process():\n        return 3\n    return process\n\n"
        "@now\nasync def process(): pass\n"
    )
    assert asyncio.run(sources.awaited(member(Output("y", "int")), entry)) == {"y": 3}


def test_an_awaited_entry_of_a_stream_delivers_none(load: Load) -> None:
    entry = load("async def process(): pass\n")
    with pytest.raises(NotDelivered, match="node 'n' did not deliver 'loss': it yields nothing"):
        asyncio.run(sources.awaited(member(Output("loss", "float", True)), entry))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("async def process():\n    yield {}\n", "its entry is async def and yields, which it cannot yet"),
        ("async def given(): pass\nprocess = given\n", "write async def process"),
    ],
)
def test_an_entry_that_cannot_be_awaited_is_refused_by_name(load: Load, source: str, said: str) -> None:
    with pytest.raises(CannotLoad, match=f"node 'n' cannot load: .*{said}"):
        load(source)
