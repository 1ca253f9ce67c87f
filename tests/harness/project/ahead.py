"""Many short calls or runs, one of which waits for a gate: what is behind it on its slot waits as well."""

from __future__ import annotations

import time
from pathlib import Path

from breakable import witness

from farhand import flow, task


def _short(path: str, number: int, gate: str) -> int:
    """Leave a line, wait for the gate if there is one, and give the number back."""
    witness(path, f"call{number}")
    while gate and not Path(gate).exists():
        time.sleep(0.01)
    return number


@task(device="ahead", crash_retries=1000)
def short(path: str, number: int, gate: str) -> int:
    """One of many calls."""
    return _short(path, number, gate)


@flow(runs_on="server", crash_retries=1000)
def many_short(path: str, count: int, gate: str, gated: int) -> list[int]:
    """So many calls at once; only the one of number ``gated`` waits."""
    calls = [short.submit(path, number, gate if number == gated else "") for number in range(count)]
    return [call.result() for call in calls]


@flow(device="ahead", crash_retries=1000)
def short_run(path: str, number: int, gate: str) -> int:
    """One of many runs."""
    return _short(path, number, gate)


@flow(device="ahead")
def keeps_slot(gate: str) -> None:
    """Have a slot until the gate is there."""
    while not Path(gate).exists():
        time.sleep(0.01)
