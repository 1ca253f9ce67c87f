"""Starting and stopping a server where there is nothing to read, or reading has no end."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from farhand import config
from farhand.engine.packing import Packed
from farhand.engine.watcher import Watcher
from farhand.server import Server
from tests.harness.deployment import deployed
from tests.harness.waiting import eventually


def test_an_empty_directory_is_served_and_the_server_ends_when_told(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with deployed(tmp_path, project=tmp_path / "project") as running:
        eventually(lambda: "has no flow" in running.server.text(), what="a server that is ready")
        running.server.send(signal.SIGTERM)
        assert running.server.wait() == 0


@pytest.mark.anyio
async def test_a_stop_is_obeyed_while_the_project_is_still_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = asyncio.Event()

    async def never(_: Watcher) -> Packed | None:
        reading.set()
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(Watcher, "ready", never)
    said: list[str] = []
    settings = config.load({"home": tmp_path / "home", "port": 0, "parallel": 1}, root=tmp_path)
    server = Server(settings, said.append)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(30):
        await reading.wait()
        server.stop()
        assert await serving == 0
    assert said == []
