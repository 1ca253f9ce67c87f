"""Short steps here and elsewhere, each of which leaves a line that no other execution leaves."""

from __future__ import annotations

import os
import time

from breakable import witness

from farhand import flow, task


def execute(path: str, run: str, number: int, moment_s: float = 0.03) -> str:
    """Leave a line, take a moment, and return what only this execution knows."""
    mark = os.urandom(6).hex()
    witness(path, f"{run}/{number}/{mark}")
    time.sleep(moment_s)
    return mark


@task
def here(path: str, run: str, number: int) -> str:
    return execute(path, run, number)


@task(device="demo", crash_retries=1000)
def there(path: str, run: str, number: int) -> str:
    return execute(path, run, number, moment_s=0.005)  # short enough to be sent ahead


@flow(crash_retries=1000)
def chaotic(path: str, run: str) -> list[str]:
    """Two steps here, one on a machine with a label, two more here."""
    return [
        here(path, run, 1),
        here(path, run, 2),
        there(path, run, 3),
        here(path, run, 4),
        here(path, run, 5),
    ]
