"""Flows whose calls are jobs of their own, on machines that may be full of the flows themselves."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from breakable import witness

from farhand import LocalTarget, flow, task


@task(runs_on="server")
def beside(number: int) -> int:
    """A call on the server's own processors."""
    return number


@flow(runs_on="server")
def in_its_own_slot(count: int) -> int:
    """Wait for calls that need the very slot this runs in."""
    first = sum(beside.map(range(count)).result())
    return first + beside(100)


@flow(runs_on="server")
async def awaiting_in_its_own_slot(count: int) -> int:
    """Await such calls."""
    first = sum(await beside.map(range(count)))
    return first + await asyncio.to_thread(beside, 100)


@task(runs_on="box", gpus=1, cpus=2)
def on_a_gpu() -> list[str]:
    """What a call on a GPU is told."""
    return [os.environ["OMP_NUM_THREADS"], os.environ["CUDA_VISIBLE_DEVICES"]]


@flow(runs_on="server")
def told_its_size() -> list[str]:
    """A call on a GPU from a machine without one."""
    return on_a_gpu()


@flow(runs_on="box", gpus=1)
def holding_a_gpu() -> list[str]:
    """Call for the GPU that this flow holds."""
    return on_a_gpu()


@task(device="late")
def later(path: str) -> int:
    """A call for a machine that is not there yet."""
    witness(path, "called")
    return 1


@flow(runs_on="server")
def waiting_for_a_machine(path: str, number: int) -> int:
    """Wait for such a call."""
    witness(path, "began")
    return later(path) + number - number


@flow(runs_on="worker")
def reading(at: Path) -> int:
    """How much there is in a file, where this runs."""
    return len(at.read_text())


@flow(runs_on="worker")
def writing(at: str) -> bool:
    """Write a target that only the body of the flow knows as one."""
    target = LocalTarget(at)
    with target.open("w") as file:
        file.write("text")
    return target.exists()


@task(device="steady", crash_retries=0)
def long_call(path: str, gate: str) -> str:
    """Leave a line, and wait for a file."""
    witness(path, "called")
    while not Path(gate).exists():
        time.sleep(0.02)
    return "done"


@flow(device="frail")
def parent_of_a_long_call(path: str, gate: str) -> str:
    """Wait for a call on another machine."""
    witness(path, "parent")
    return long_call(path, gate)
