"""How a service is looked after, whatever the looking itself meets."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farhand_worker import hosting as hosting_module
from farhand_worker.engine import Ended
from farhand_worker.hosting import Hosted
from farhand_worker.listening import Place
from farhand_worker.protocol import Assign, Times

pytestmark = pytest.mark.anyio

Looks = Callable[..., None]
ENGINE: Any = SimpleNamespace(end=None, pid=1)


@pytest.fixture
async def hosted(tmp_path: Path) -> AsyncIterator[Hosted]:
    state = SimpleNamespace(spool=tmp_path, outgoing=tmp_path, scratch=tmp_path)
    host: Any = SimpleNamespace(
        state=state,
        limits={},
        times=Times().scaled(0.01),
        wake=lambda: None,
        pool=SimpleNamespace(),
        disk=SimpleNamespace(note=lambda error: None),
    )
    args = {"name": "model", "command": ["python"], "health": None}
    assign = Assign("j", 1, 1, "service", "", "", "", args, "")
    hosted = Hosted(host, assign)
    hosted._port = 1
    hosted.reports.create()
    yield hosted
    hosted.reports.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    def set_up(*found: Place | Exception, then: Callable[[], object] = lambda: None) -> None:
        left, loop = list(found), asyncio.get_running_loop()

        def place_of(pid: int, port: int) -> Place:
            if not left:
                loop.call_soon_threadsafe(then)
                return Place(None)
            place = left.pop(0)
            if isinstance(place, Exception):
                raise place
            return place

        monkeypatch.setattr(hosting_module, "place_of", place_of)

    return set_up


async def test_a_service_that_could_not_be_looked_at_once_is_looked_at_again(
    hosted: Hosted, looks: Looks
) -> None:
    end = Ended(0, None, None)
    trouble = OSError(errno.EMFILE, "too many open files")
    looks(trouble, Place("127.0.0.1"), then=lambda: hosted.engine_ended(end))
    assert await asyncio.wait_for(hosted._keep(ENGINE), 10) == end
    assert hosted._was_healthy


async def test_a_mistake_of_the_watch_is_not_the_end_of_it_unnoticed(hosted: Hosted, looks: Looks) -> None:
    looks(ZeroDivisionError("a mistake"))
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        await asyncio.wait_for(hosted._keep(ENGINE), 10)
