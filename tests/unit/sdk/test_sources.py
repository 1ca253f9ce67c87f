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
        ("async def given(): pass\nprocess = given\n", "write async def process"),
        ("async def given():\n    yield {}\nprocess = given\n", "write async def process"),
    ],
)
def test_an_entry_that_cannot_be_awaited_is_refused_by_name(load: Load, source: str, said: str) -> None:
    with pytest.raises(CannotLoad, match=f"node 'n' cannot load: .*{said}"):
        load(source)


def awaited(load: Load, source: str, *provides: Output) -> Any:
    """What an entry of this source delivers."""
    return asyncio.run(sources.awaited(member(*provides), load(source)))


def test_an_awaited_entry_that_yields_delivers_its_streams_and_what_it_yields_once(load: Load) -> None:
    source = (
        "import asyncio\n"
        "async def process():\n"
        "    for each in range(3):\n"
        "        await asyncio.sleep(0)\n"
        "        yield {'loss': each}\n"
        "    yield {'loss': 9, 'weights': 'w'}\n"
    )
    delivered = awaited(load, source, Output("loss", "float", True), Output("weights"))
    assert delivered == {"loss": [0.0, 1.0, 2.0, 9.0], "weights": "w"}


@pytest.mark.parametrize(
    ("yields", "said"),
    [
        ("yield {'loss': 1}", "node 'n' did not deliver 'weights'"),
        ("yield {'weights': 1}\n    yield {'weights': 2}", "node 'n' yields 'weights' twice, and it is no"),
        ("yield {'other': 1}", "node 'n' yields 'other', which it does not declare as a stream"),
        ("yield 3", "node 'n' yields int, and may yield only dicts"),
        ("yield {'weights': 'many'}", "node 'n' delivers 'weights' as something else than int"),
    ],
)
def test_what_an_awaited_entry_yields_otherwise_is_named(load: Load, yields: str, said: str) -> None:
    outputs = (Output("loss", "float", True), Output("weights", "int"))
    with pytest.raises(NotDelivered, match=said):
        awaited(load, f"async def process():\n    {yields}\n", *outputs)


def test_an_awaited_entry_that_fails_in_the_middle_is_closed(load: Load) -> None:
    source = (
        "closed = []\n"
        "async def process():\n    try:\n        yield 3\n    finally:\n        closed.append(1)\n"
    )
    entry = load(source)
    with pytest.raises(NotDelivered):
        asyncio.run(sources.awaited(member(), entry))
    assert entry.__globals__["closed"] == [1]
