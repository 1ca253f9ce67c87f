"""Agent and warden killed and frozen, in every combination: nothing outlives them, nothing is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.processes import send, signal_all
from tests.integration.agent_server import (
    SLEEP,
    STUBBORN,
    TENTH,
    AgentProcess,
    FakeServer,
    alive,
    children,
    stubborn,
    until,
)

pytestmark = pytest.mark.anyio
LOST = "the agent ended and its engines with it"


@pytest.fixture
async def agent(server: FakeServer, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    agent = AgentProcess(server, tmp_path / "state").start()
    await server.attached()
    yield agent
    for pid in [agent.warden] if agent.warden else []:
        send(pid, signal.SIGCONT)
    agent.close()


async def _gone(*pids: int, within_s: float) -> float:
    began = time.monotonic()
    await until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}", within_s)
    return time.monotonic() - began


async def test_everything_ends_within_a_second_of_a_killed_agent(
    server: FakeServer, agent: AgentProcess, record_property: pytest.RecordProperty
) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    warden = agent.warden
    agent.signal(signal.SIGKILL)
    record_property("seconds", await _gone(engine, child, warden, within_s=1))


async def test_a_frozen_agent_loses_its_engines_at_the_deadline_and_reports_their_end(
    server: FakeServer, agent: AgentProcess, record_property: pytest.RecordProperty
) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    agent.signal(signal.SIGSTOP)
    record_property("seconds", await _gone(engine, child, within_s=TENTH.lease_s + 1))
    agent.signal(signal.SIGCONT)
    kind, body = await server.ended("j")
    assert (kind, body["reason"]) == ("exit", "stopped")
    await server.attached(2)
    await server.assign("k")
    await server.ended("k")


async def test_a_thawed_agent_whose_job_was_given_away_is_fenced_and_says_nothing_more(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, _ = await stubborn(server, "j")
    agent.signal(signal.SIGSTOP)
    await _gone(engine, within_s=TENTH.lease_s + 1)
    server.fenced.add(("j", 1))
    agent.signal(signal.SIGCONT)
    await server.attached(2)
    await until(lambda: not list((agent.state / "spool").iterdir()), "its spool is deleted")
    assert server.record("j").final is None


async def test_agent_warden_and_engine_frozen_together_are_killed_when_they_thaw(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", STUBBORN + "\nwhile True: time.sleep(0.01); log('tick')")
    engine, child = await stubborn(server, "j")
    frozen = [agent.pid, agent.warden, engine, child]
    for pid in frozen:
        send(pid, signal.SIGSTOP)
    thaw = time.monotonic() + 2 * TENTH.lease_s
    await until(lambda: time.monotonic() > thaw, "two leases")
    server.fenced.add(("j", 1))
    signal_all(frozen, signal.SIGCONT)  # the first to thaw may end the others
    await _gone(engine, child, within_s=1)
    assert server.record("j").final is None


async def test_a_killed_warden_takes_its_engines_with_it_and_is_replaced(
    server: FakeServer, agent: AgentProcess, record_property: pytest.RecordProperty
) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    first, stem = agent.warden, agent.stem
    send(first, signal.SIGKILL)
    record_property("seconds", await _gone(engine, child, stem, within_s=1))
    kind, body = await server.ended("j")
    assert (kind, body["reason"], body["message"]) == ("exit", "crashed", "the warden ended")
    await server.assign("k")
    await server.ended("k")
    assert agent.warden not in (0, first)
    assert agent.stem not in (0, stem)
    assert len(server.hellos) == 1


async def test_a_silent_warden_is_killed_and_replaced(
    server: FakeServer, agent: AgentProcess, record_property: pytest.RecordProperty
) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    send(agent.warden, signal.SIGSTOP)
    record_property("seconds", await _gone(engine, child, within_s=TENTH.heartbeat_s + TENTH.margin_s + 1))
    assert (await server.ended("j"))[1]["message"] == "the warden ended"
    await server.assign("k")
    await server.ended("k")


async def test_agent_and_warden_killed_at_once_leave_nothing_that_the_next_agent_does_not_sweep(
    server: FakeServer, agent: AgentProcess, record_property: pytest.RecordProperty
) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    warden = agent.warden
    send(warden, signal.SIGSTOP)
    agent.signal(signal.SIGKILL)
    send(warden, signal.SIGKILL)
    record_property("engine_s", await _gone(engine, within_s=1))
    assert agent.process is not None
    agent.process.wait()
    previous = server.hellos[0].instance
    agent.start()
    await server.attached(2)
    assert not alive(child)
    hello = server.hellos[1]
    assert hello.swept == previous
    assert [(h["job"], h["lease"], h["ended"]) for h in hello.held] == [("j", 1, True)]
    assert hello.held[0]["started_at"]
    kind, body = await server.ended("j")
    assert (kind, body["reason"], body["message"]) == ("exit", "crashed", LOST)
    await until(lambda: not list((agent.state / "spool").iterdir()), "the leftover is deleted")


async def test_the_next_agent_replays_exactly_what_was_not_recorded(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "import time\nfor i in range(50): log(str(i))\n" + SLEEP)
    await server.line("j", "49")
    server.stall()
    await server.assign("k", "log('never')")
    spool = agent.state / "spool" / "j-1.engine"
    agent.signal(signal.SIGKILL)
    assert agent.process is not None
    agent.process.wait()
    await until(lambda: not (agent.state / "spool" / "k-1.engine").exists(), "k was never accepted")
    with spool.open("a") as file:
        file.write('["log",{"at":1,"text":"50"}]\n["log",{"at":1,"text":"torn')
    server.cut()
    server.go_on()
    agent.start()
    kind, body = await server.ended("j")
    assert server.record("j").texts() == [str(i) for i in range(51)]
    assert (kind, body["message"]) == ("exit", LOST)


async def test_a_result_that_was_not_acknowledged_is_replayed_by_the_next_agent(
    server: FakeServer, agent: AgentProcess
) -> None:
    server.acknowledges = False
    await server.assign("j", "value = 5")
    await server.ended("j")
    agent.signal(signal.SIGKILL)
    assert agent.process is not None
    agent.process.wait()
    server.acknowledges = True
    agent.start()
    await server.attached(2)
    await until(lambda: not list((agent.state / "spool").iterdir()), "the spool is deleted")
    assert server.record("j").events["agent"] == []


async def test_a_second_agent_on_a_state_directory_is_refused_by_name(
    server: FakeServer, agent: AgentProcess
) -> None:
    second = AgentProcess(server, agent.state)
    second.log_path = agent.state.with_name("second.log")
    second.start()
    assert await second.exit_code() == 3
    assert f"process id {agent.pid}" in second.log


async def test_twenty_killed_engines_in_a_row_cost_the_worker_nothing(
    server: FakeServer, agent: AgentProcess
) -> None:
    """B011."""
    for number in range(20):
        await server.assign(f"j{number}", "import os; os.kill(os.getpid(), 9)")
        assert (await server.ended(f"j{number}"))[1]["signal"] == 9
    await server.assign("k")
    await server.ended("k")


async def test_children_that_nobody_waits_for_leave_no_zombies(
    server: FakeServer, agent: AgentProcess
) -> None:
    """B035."""
    code = "import subprocess\nfor i in range(30): subprocess.Popen(['true'])\nimport os; os._exit(0)"
    await server.assign("j", code)
    await server.ended("j")
    assert children(agent.pid) == [agent.warden]
    assert children(agent.warden) == [agent.stem]
    assert "stem" not in agent.log, "it is the one that was begun before there was a server"
