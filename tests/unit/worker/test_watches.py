"""What ends an attempt whose engine does not end it itself."""

from __future__ import annotations

import asyncio

import pytest

from farhand_worker.watches import Watches

pytestmark = pytest.mark.anyio

LONG = 3600.0


class Ends:
    """What a watch said, and when something was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard = asyncio.Event()

    def end(self, why: str) -> None:
        self.said.append(why)
        self.heard.set()


def watching(ends: Ends, timeout_s: float | None, silence_s: float | None, import_s: int) -> Watches:
    return Watches(timeout_s, silence_s, ends.end, lambda: 0, {"import_s": import_s})


@pytest.mark.parametrize(("timeout_s", "silence_s", "why"), [(0.0, None, "timeout"), (None, 0.0, "silence")])
async def test_what_limits_a_job_counts_from_when_its_module_is_imported(
    timeout_s: float | None, silence_s: float | None, why: str
) -> None:
    """B009: a long import has a limit of its own."""
    ends = Ends()
    watches = watching(ends, timeout_s, silence_s, 3600)
    watches.begin(0.01)
    watches.importing(True)
    await asyncio.sleep(0.05)
    assert ends.said == []
    watches.importing(False)
    await asyncio.wait_for(ends.heard.wait(), 10)
    assert ends.said == [why]
    watches.close()


async def test_an_import_that_takes_too_long_is_the_end(anyio_backend: str) -> None:
    ends = Ends()
    watches = watching(ends, LONG, LONG, 0)
    watches.begin(LONG)
    watches.importing(True)
    await asyncio.wait_for(ends.heard.wait(), 10)
    assert ends.said == ["import"]
    watches.close()
