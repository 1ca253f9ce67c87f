"""A worker in a network that is left through a proxy alone: every connection of it goes that way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.outbound import OutboundProxy
from tests.harness.processes import alive
from tests.integration.agent_server import SLEEP, STUBBORN, TENTH, AgentProcess, FakeServer, stubborn, until

pytestmark = pytest.mark.anyio

HOST = "flows.invalid"
"""No machine resolves it: whoever reaches the server has gone through the proxy."""


@pytest.fixture
def proxy() -> Iterator[OutboundProxy]:
    proxy = OutboundProxy()
    yield proxy
    proxy.close()


@pytest.fixture
def agent(server: FakeServer, tmp_path: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(server, tmp_path / "state", "--url", f"http://{HOST}:{server.port}", "--insecure")
    yield agent
    agent.close()


@pytest.mark.fault("3.59")
async def test_session_and_files_go_through_the_proxy_that_the_environment_names(
    server: FakeServer, proxy: OutboundProxy, agent: AgentProcess
) -> None:
    """B114."""
    proxy.credentials = "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"
    agent.start(HTTP_PROXY=proxy.url.replace("//", "//me:secret@"))
    await server.assign("j", "log('here')")
    await server.ended("j")
    assert server.record("j").texts() == ["here"]
    assert len(proxy.asked) >= 2, "the bundle came another way"
    assert {head.split(" ")[1] for head in proxy.asked} == {f"{HOST}:{server.port}"}
    assert f"by way of the proxy {proxy.address}" in agent.log
    assert "secret" not in agent.log


@pytest.mark.fault("3.59")
async def test_a_proxy_that_refuses_is_no_evidence_that_the_server_is_away(
    server: FakeServer, proxy: OutboundProxy, agent: AgentProcess
) -> None:
    """Else a worker would go on for as long as an outage may last, beside the rerun of its job."""
    agent.start(HTTP_PROXY=proxy.url)
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    proxy.refuse()
    began = time.monotonic()
    server.cut()
    await until(lambda: not alive(engine) and not alive(child), "the end at the lease")
    assert time.monotonic() - began < TENTH.lease_s + 2
    assert f"the proxy {proxy.address} cannot be reached: Connection refused" in agent.log


async def test_a_proxy_that_does_not_lead_there_says_so_and_is_asked_again(
    server: FakeServer, proxy: OutboundProxy, agent: AgentProcess
) -> None:
    proxy.status = 502
    agent.start(HTTP_PROXY=proxy.url)
    await until(lambda: "answered 502 to a connection to flows.invalid" in agent.log, "it says what is wrong")
    proxy.credentials = "another"
    await until(lambda: "wants other credentials" in agent.log, "it says what is missing")
    proxy.credentials, proxy.status = "", 200
    await server.attached()


async def test_a_proxy_of_another_kind_is_2_and_named(server: FakeServer, agent: AgentProcess) -> None:
    agent.start(ALL_PROXY="socks5://proxy.lan:1080")
    assert await agent.exit_code() == 2
    assert "ALL_PROXY names no proxy at http://HOST:PORT" in agent.log
