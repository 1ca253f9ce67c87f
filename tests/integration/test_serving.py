"""Starting and stopping a server where there is nothing to read, or reading has no end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from farhand import config
from farhand.engine.packing import Packed
from farhand.engine.watcher import Watcher
from farhand.server import Server
from tests.harness.deployment import deployed
from tests.harness.waiting import eventually


def test_an_empty_directory_is_served_and_the_server_ends_when_told(tmp_path: Path) -> None:
    """A flow that is written into it can be started as soon as its file is saved."""
    (tmp_path / "project").mkdir()
    with deployed(tmp_path, project=tmp_path / "project") as running:
        eventually(lambda: "has no flow" in running.server.text(), what="a server that is ready")
        (tmp_path / "project" / "late.py").write_text("from farhand import flow\n@flow\ndef late(): ...\n")
        assert running.get(f"/runs/{running.start_run('late')}")["flow"] == "late"
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


def test_few_descriptors_by_default_hold_up_no_server_of_many_connections(tmp_path: Path) -> None:
    """Its own processors keep the limit that it was started with: user code is no server."""
    (tmp_path / "project").mkdir()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -S -n 100\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with deployed(tmp_path, project=tmp_path / "project") as running, contextlib.ExitStack() as open_ones:
        running.server.send(signal.SIGTERM)
        running.server.wait()
        running.server.python = str(python)
        running.restart()
        running.wait_for_worker("server", "online")
        for _ in range(150):
            open_ones.enter_context(socket.create_connection(("127.0.0.1", running.port)))
        assert [worker["name"] for worker in running.items("/workers")] == ["server"]
        limits = {
            child.rlimit(psutil.RLIMIT_NOFILE)[0]
            for child in psutil.Process(running.local_pid).children()
            if "warden.py" in " ".join(child.cmdline())
        }
        assert limits == {100}
        assert "Too many open files" not in running.server.text()
