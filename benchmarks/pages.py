"""Pages of runs: what one costs with few and with many runs stored."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from farhand.model import Run
from farhand.sdk.ids import new_id
from farhand.store import Store
from farhand.store.rows import RUNS
from farhand.store.runs import Wanted

FEW, MANY = 2_000, 200_000
_STATES = ("completed", "completed", "completed", "failed", "cancelled")
_REPEATS = 50


def measure(directory: Path) -> dict[str, float]:
    """Milliseconds, the median, with `MANY` runs stored, by the keys of `figures.ROWS`; prints both."""
    found = asyncio.run(_measure(directory))
    print(f"pages of 50 runs, with {FEW} and with {MANY} stored")
    for what, (few_s, many_s) in found.items():
        print(
            f"  {what:12} {few_s * 1000:8.3f} ms {many_s * 1000:8.3f} ms, {many_s / few_s:.2f} times as long"
        )
    return {f"page_{what}": many_s * 1000 for what, (_, many_s) in found.items()}


async def _measure(directory: Path) -> dict[str, tuple[float, float]]:
    found: dict[str, list[float]] = {}
    for count in (FEW, MANY):
        store = await Store.open(directory / f"{count}.db")
        try:
            await _fill(store, count)
            for what, ask in _questions(store, count).items():
                found.setdefault(what, []).append(await _median_s(ask))
        finally:
            await store.close()
    return {what: (few, many) for what, (few, many) in found.items()}


async def _fill(store: Store, count: int) -> None:
    made = [_run(number) for number in range(count)]
    for start in range(0, count, 2_000):
        rows = [RUNS.dump(run) for run in made[start : start + 2_000]]
        await store.database.write(lambda connection, rows=rows: connection.executemany(RUNS.insert, rows))


def _run(number: int) -> Run:
    at = 1_700_000_000.0 + number
    return Run(
        new_id(at), f"flow{number % 20}", _STATES[number % 5], "", f"message {number}", "{}", at,
        started_at=at, ended_at=at + 1, host=f"host{number % 10}",
    )  # fmt: skip


def _questions(store: Store, count: int) -> dict[str, Callable[[], Awaitable[Any]]]:
    deep = new_id(1_700_000_000.0 + count // 2)
    page = store.runs.page
    return {
        "first": lambda: page(50),
        "deep": lambda: page(50, deep),
        "flow": lambda: page(50, deep, Wanted(flow="flow3", state="failed")),
        "host": lambda: page(50, deep, Wanted(host="host3")),
        "text": lambda: page(50, None, Wanted(text="message 1")),
        "rare": lambda: page(50, None, Wanted(text="nowhere to be found")),
    }


async def _median_s(ask: Callable[[], Awaitable[Any]]) -> float:
    times: list[float] = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
