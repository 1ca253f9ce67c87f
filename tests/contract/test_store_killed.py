"""What a store holds after its owner was killed in the middle of writing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from farhand.store import Store

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from pathlib import Path
from farhand.store import Store

async def write(store, worker):
    number = 0
    while True:
        await store.events.add(1.0, "test", f"{worker}.{number}")
        print(f"{worker}.{number}", flush=True)
        number += 1

async def main():
    store = await Store.open(Path(sys.argv[1]))
    await asyncio.gather(*(write(store, worker) for worker in range(8)))

asyncio.run(main())
"""


async def test_what_was_answered_before_a_kill_is_there_after_it(tmp_path: Path):
    """The lock goes with the process, and the next owner finds every answered write."""
    answered = await asyncio.to_thread(answered_before_kill, tmp_path)
    store = await Store.open(tmp_path)
    found = [event.message for event in (await store.events.page(limit=100_000)).items]
    await store.close()
    assert set(answered) <= set(found)
    assert len(found) == len(set(found))


def answered_before_kill(home: Path) -> list[str]:
    """Let a process write to the store, kill it, and say which of its writes had been answered."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        answered = [owner.stdout.readline() for _ in range(400)]
        owner.kill()
        answered += [line for line in owner.stdout if line.endswith("\n")]
    return [line.strip() for line in answered]
