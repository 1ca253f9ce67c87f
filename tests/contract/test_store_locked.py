"""What a store keeps of an end that it refused, because another process had its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from farhand.errors import StoreFailed
from farhand.resources import Capacity
from farhand.store import Store
from tests.harness.stores import handed

if TYPE_CHECKING:
    from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio

ROOM = Capacity(100)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """While this is open another process writes there."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


async def test_an_end_that_is_refused_gives_no_slot_away_and_keeps_none(
    tmp_path: Path, tell: Callable[[Store], Story]
) -> None:
    """B064: what is taken is counted from leases, and those end in the transaction that records the end."""
    store = await Store.open(tmp_path / "store.db")
    store.database._writing.execute("PRAGMA busy_timeout = 0")  # type: ignore[attr-defined]
    story = tell(store)
    leased = await story.running(max_concurrent=1)
    for _ in range(20):
        waiting = await story.run(max_concurrent=1)
        with locked(tmp_path / "store.db"), pytest.raises(StoreFailed, match="locked"):
            await story.report(leased, story.result())
        assert await handed(store, waiting.id, "w1", ROOM, story.now) is None
        await story.report(leased, story.result())
        leased = await story.running(waiting)
    await store.close()
