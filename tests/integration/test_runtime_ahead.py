"""A worker has its runtime, and what engines are forked from has loaded it, before a server takes it in."""

from __future__ import annotations

from pathlib import Path

import pytest

from farhand_worker.trees import LINUX
from tests.integration.agent_server import AgentProcess, FakeServer, until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not LINUX, reason="stems are of Linux")]
RUNTIME = "/api/v1/workers/runtime"


async def test_a_runtime_is_fetched_once_and_loaded_before_the_worker_attaches(
    server: FakeServer, tmp_path: Path
) -> None:
    server.attends = False
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        stem = await until(lambda: agent.stem, "the stem has loaded the runtime")
        assert server.hellos == []
        server.attends = True
        await server.attached()
        await server.assign("j", "value = 1")
        await server.ended("j")
        assert agent.stem == stem
        assert server.gets.count(RUNTIME) == 1
    finally:
        agent.close()


async def test_where_the_server_does_not_say_it_is_that_of_last_time_until_another_is_named(
    server: FakeServer, tmp_path: Path
) -> None:
    first = AgentProcess(server, tmp_path / "state").start()
    await server.attached()
    await until(lambda: first.stem, "the stem has loaded the runtime")
    first.close()
    server.attends = server.tells_digest = False
    server.runtime = server.runtime_of(b"# a newer one")
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        stem = await until(lambda: agent.stem, "the stem has loaded the runtime of last time")
        fetched = server.gets.count(RUNTIME)
        server.attends = True
        await server.attached(2)
        await until(lambda: agent.stem not in (0, stem), "another takes its place")
        await server.assign("j", "value = 1")
        await server.ended("j")
        assert server.gets.count(RUNTIME) == fetched + 1
    finally:
        agent.close()
