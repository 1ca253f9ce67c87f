"""The agent with the real runtime: its engine, its spool, its checkpoints, over the real channel."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from farhand.engine import runtime
from tests.integration.agent_server import STEADY, AgentProcess, FakeServer, digest_of, until, zipped

pytestmark = pytest.mark.anyio

FLOWS = b"""
import os, subprocess, time
from farhand import emit, flow, save_artifact, task

@task
def double(n: int) -> int:
    print("doubling", n)
    return n * 2

@flow
def count(n: int = 3) -> list:
    os.write(1, b"raw\\n")
    subprocess.run(["echo", "from a child"], check=True)
    emit(loss=0.5)
    save_artifact(b"x" * 100_000, name="big.bin")
    return [double(i) for i in range(n)]

@flow
def sleeper() -> None:
    subprocess.Popen(["sleep", "600"])
    print("asleep")
    time.sleep(600)
"""


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    server = FakeServer(STEADY)
    server.runtime = runtime.build()
    server.bundle = zipped({"flows.py": FLOWS})
    server.blobs = {digest_of(server.bundle): server.bundle}
    await server.start()
    yield server
    await server.close()


async def test_a_flow_runs_with_its_tasks_output_metrics_and_artifacts(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", entry="flows:count", args={"enc": "json", "text": '{"n": 2}'})
    kind, body = await server.ended("j")
    assert (kind, body["state"]) == ("result", "completed"), body
    assert json.loads(body["value"]["text"]) == [0, 2]
    record = server.record("j")
    assert record.texts("agent") == ["raw", "from a child"]
    assert record.texts("engine") == ["doubling 0", "doubling 1"]
    kinds = {event[0] for event in record.events["engine"]}
    assert {"started", "metric", "artifact", "task", "checkpoint", "result"} <= kinds
    assert any(line.startswith("put ") for line in server.story)


async def test_a_sleeping_flow_is_cancelled_with_its_child(server: FakeServer, agent: AgentProcess) -> None:
    await server.assign("j", entry="flows:sleeper")
    await server.line("j", "asleep")
    await server.cancel("j")
    kind, body = await server.ended("j")
    assert body.get("state") == "cancelled" or body["reason"] == "cancelled", (kind, body)


async def test_the_same_engine_runs_the_next_flow(server: FakeServer, agent: AgentProcess) -> None:
    for name in ("a", "b"):
        await server.assign(name, entry="flows:count")
        assert (await server.ended(name))[1]["state"] == "completed"
    first, second = (server.record(name).events["engine"][0][1]["pid"] for name in "ab")
    assert first == second
    await until(lambda: not list((agent.state / "spool").iterdir()), "the spools are deleted")
