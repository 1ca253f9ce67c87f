"""What is installed around a worker, from the moment an engine says where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farhand_worker.cache import Cache
from farhand_worker.distributions import environment_digest
from farhand_worker.surroundings import Surroundings

pytestmark = pytest.mark.anyio


async def until(seen: Callable[[], bool]) -> None:
    """Let the loop turn until it is seen."""
    async with asyncio.timeout(10):
        while not seen():  # noqa: ASYNC110 - a thread makes it so, which tells nobody
            await asyncio.sleep(0.001)


async def test_the_first_change_has_its_names_though_nobody_has_looked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, kept = tmp_path / "packages", tmp_path / "kept"
    packages.mkdir()
    told: list[Any] = []
    cache: Cache = object()  # type: ignore[assignment]
    surroundings = Surroundings(None, cache, told.append, lambda _: None, kept)
    monkeypatch.setattr("farhand_worker.surroundings.QUIET_S", 0.001)
    surroundings.engine_began(environment_digest([str(packages)]), [str(packages)])
    await until(kept.exists)  # it is listed at once, not when the next look is due
    (packages / "rare-1.0.dist-info").mkdir()
    watching = asyncio.ensure_future(surroundings.watch())
    await until(lambda: len(told) == 2)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert [(each.environment is not None, each.installed) for each in told] == [
        (True, None),
        (True, ["rare 1.0 added"]),
    ]
