"""A real engine process, driven by a fake agent over its socket; and the fake server of a real agent."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.agent_server import TENTH, AgentProcess, FakeServer
from tests.integration.fake_agent import FakeAgent, make_runtime

Begin = Callable[..., FakeAgent]


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runtime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[FakeServer]:
    """By the ``TIMES`` of the test's module, or else a tenth of the usual ones."""
    server = await FakeServer(getattr(request.module, "TIMES", TENTH)).start()
    yield server
    await server.close()


@pytest.fixture
async def agent(server: FakeServer, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    agent = AgentProcess(server, tmp_path / "state").start()
    await server.attached()
    yield agent
    agent.close()


@pytest.fixture
def begin(tmp_path: Path, runtime: Path) -> Iterator[Begin]:
    agents: list[FakeAgent] = []

    def start(text: str, **env: str) -> FakeAgent:
        python = os.environ.get("FARHAND_TEST_PYTHON", sys.executable)
        agent = FakeAgent(tmp_path / f"state{len(agents)}", runtime, python, **env)
        agents.append(agent)
        agent.bundle("pipeline.py", "from farhand import *\nimport os, sys, time, threading\n" + text)
        return agent

    yield start
    for agent in agents:
        agent.close()
