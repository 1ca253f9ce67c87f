"""How a worker ends, what it never tells anybody, and how small it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farhand_worker.protocol import Probe, Set
from tests.harness.processes import send
from tests.integration.agent_server import (
    SLEEP,
    STEADY,
    STUBBORN,
    TOKEN,
    AgentProcess,
    FakeServer,
    alive,
    command_of,
    stubborn,
    until,
)

pytestmark = pytest.mark.anyio
TIMES = STEADY


async def test_sigterm_finishes_what_runs_says_goodbye_and_exits_0(
    server: FakeServer, agent: AgentProcess
) -> None:
    """B036."""
    await server.assign("j", "value = outcomes.get()")
    await until(lambda: server.record("j").events["engine"], "it started")
    agent.signal(signal.SIGTERM)
    await server.attached(2)
    assert server.hellos[1].draining
    assert not server.hellos[0].draining
    beats = len(server.beats)
    await until(lambda: len(server.beats) > beats + 2, "it goes on beating")
    await server.outcome("j", "k", {})
    assert await agent.exit_code() == 0
    assert server.record("j").final is not None
    assert [bye.reason for bye in server.byes] == ["drained"]


async def test_a_second_sigterm_ends_engines_with_grace_as_stopped_not_as_cancelled(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("polite", "cancelled.wait(60)")
    await server.assign("rude", STUBBORN + "import signal; signal.pthread_sigmask(0, [15])\n" + SLEEP)
    engine, child = await stubborn(server, "rude")
    await until(lambda: server.record("polite").events["engine"], "it started")
    agent.signal(signal.SIGTERM)
    await server.attached(2)
    agent.signal(signal.SIGTERM)
    assert await agent.exit_code() == 0
    for job in ("polite", "rude"):
        kind, body = await server.ended(job)
        assert (kind, body["reason"]) == ("exit", "stopped")
    assert not alive(engine)
    assert not alive(child)
    assert [bye.reason for bye in server.byes] == ["stopped"]


async def test_a_worker_that_is_stopped_says_first_that_it_takes_nothing_new(
    server: FakeServer, agent: AgentProcess
) -> None:
    """Both signals come at once, as from a service manager. What it gave back would be handed to it again."""
    await server.assign("j", "cancelled.wait(60)")
    await until(lambda: server.record("j").events["engine"], "it started")
    agent.signal(signal.SIGINT)
    agent.signal(signal.SIGTERM)
    assert await agent.exit_code() == 0
    assert [hello.draining for hello in server.hellos] == [False, True]
    assert [held["job"] for held in server.hellos[1].held] == ["j"]
    assert (await server.ended("j"))[1]["reason"] == "stopped"
    assert [bye.reason for bye in server.byes] == ["stopped"]


async def test_what_comes_while_a_worker_ends_all_it_has_is_left_to_others(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("rude", STUBBORN + "import signal; signal.pthread_sigmask(0, [15])\n" + SLEEP)
    await stubborn(server, "rude")
    agent.signal(signal.SIGINT)
    agent.signal(signal.SIGTERM)
    await server.attached(2)
    await server.assign("late")
    assert await agent.exit_code() == 0
    assert server.record("late").accepted == 0
    assert not server.record("late").events["engine"]


async def test_a_signal_that_comes_between_a_hello_and_its_welcome_is_said_in_another(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "cancelled.wait(60)")
    await until(lambda: server.record("j").events["engine"], "it started")
    server.welcomes.clear()
    server.cut()
    await until(lambda: len(server.hellos) == 2, "it dials again")
    agent.signal(signal.SIGINT)
    agent.signal(signal.SIGTERM)
    await until(lambda: "stopping: ends 1 jobs" in agent.log, "the signals are heard")
    server.welcomes.set()
    assert await agent.exit_code() == 0
    assert [hello.draining for hello in server.hellos] == [False, False, True]
    assert (await server.ended("j"))[1]["reason"] == "stopped"


async def test_a_job_that_completes_within_the_grace_of_a_stop_is_completed(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "cancelled.wait(60); cancelled.clear(); value = 'finished'")
    await until(lambda: server.record("j").events["engine"], "it started")
    agent.signal(signal.SIGTERM)
    await until(lambda: "draining" in agent.log, "the first signal is heard")
    agent.signal(signal.SIGTERM)
    kind, body = await server.ended("j")
    assert (kind, body["state"]) == ("result", "completed")
    assert await agent.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
async def test_in_an_allocation_an_engine_that_is_signalled_before_its_agent_is_stopped_and_no_crash(
    server: FakeServer, tmp_path: Path, number: signal.Signals
) -> None:
    """B084: a scheduler that takes a machine away signals every process on it, in any order.

    SIGUSR1 is what many have it send a while before; it ends no warden.
    """
    agent = AgentProcess(server, tmp_path / "state").start(SLURM_JOB_ID="7")
    engines: dict[str, int] = {}
    try:
        await server.attached()
        for job in ("alone", "taken"):
            await server.assign(job, "cancelled.wait(60)")
            await until(lambda job=job: server.record(job).events["engine"], "it started")
            engines[job] = server.record(job).events["engine"][0][1]["pid"]
        send(agent.warden, number)
        send(engines["alone"], number)
        ends = {"alone": await server.ended("alone")}
        send(engines["taken"], number)
        await until(lambda: not alive(engines["taken"]), "its engine has ended")
        beats = len(server.beats)
        await until(lambda: len(server.beats) > beats + 1, "the agent has seen that")
        assert server.record("taken").final is None, "and waits for what the scheduler says to itself"
        agent.signal(number)
        ends["taken"] = await server.ended("taken")
        assert await agent.exit_code() == 0
    finally:
        agent.close()
    assert ends["alone"][1]["reason"] == "crashed", "nobody has told the agent that the machine is taken away"
    assert ends["taken"][1]["reason"] == "stopped"


async def test_an_idle_worker_leaves_at_the_first_sigterm(server: FakeServer, agent: AgentProcess) -> None:
    warden = agent.warden
    agent.signal(signal.SIGTERM)
    assert await agent.exit_code() == 0
    assert not alive(warden)
    assert len(server.byes) == 1


async def test_an_orphaned_worker_ends_by_itself(server: FakeServer, tmp_path: Path) -> None:
    agent = AgentProcess(server, tmp_path / "state", "--orphan-s", "1").start()
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    await server.stop_listening()
    assert await agent.exit_code(15) == 0
    assert not alive(engine)
    assert not alive(child)
    assert "no server has answered for 1 s" in agent.log


async def test_the_url_is_read_again_from_its_file_before_every_dial(
    server: FakeServer, tmp_path: Path
) -> None:
    path = tmp_path / "url"
    path.write_text("http://127.0.0.1:9\n")
    agent = AgentProcess(server, tmp_path / "state", "--url-file", str(path)).start()
    try:
        await until(lambda: "connection refused" in agent.log, "the first dial")
        path.write_text(server.url)
        await server.attached()
    finally:
        agent.close()


async def test_the_token_is_in_no_argument_environment_or_log(server: FakeServer, tmp_path: Path) -> None:
    agent = _started_with_a_token_pipe(server, tmp_path)
    try:
        await server.assign("j", "cancelled.wait(60)")
        await until(lambda: server.record("j").events["engine"], "it started")
        engine = server.record("j").events["engine"][0][1]["pid"]
        for pid in (agent.pid, agent.warden, engine):
            assert TOKEN.encode() not in command_of(pid)
            assert TOKEN.encode() not in _environment(pid)
        assert TOKEN not in agent.log
        for path in (tmp_path / "state").rglob("*"):
            assert not path.is_file() or TOKEN.encode() not in path.read_bytes()
    finally:
        agent.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--url", "http://farhand.example"], "is not encrypted: use wss:// (https:// for"),
        (["--url", "ftp://127.0.0.1"], "use https://HOST:PORT"),
        (["--url", "http://127.0.0.1:1", "--python", "/nowhere/python"], "is no Python that runs here"),
    ],
)
async def test_what_cannot_work_is_said_at_once_with_exit_2(
    server: FakeServer, tmp_path: Path, options: list[str], sentence: str
) -> None:
    agent = AgentProcess(server, tmp_path / "state", *options).start()
    assert await agent.exit_code() == 2
    assert sentence in agent.log


async def test_a_state_directory_of_somebody_else_is_refused(server: FakeServer, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a directory of somebody else")
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 12345, 12345)
    agent = AgentProcess(server, state).start()
    assert await agent.exit_code() == 3
    assert "another with --state-dir" in agent.log


async def test_the_state_directory_is_private(server: FakeServer, agent: AgentProcess) -> None:
    assert agent.state.stat().st_mode & 0o777 == 0o700
    assert (agent.state / "lock").read_text().split()[0] == str(agent.pid)


async def test_agent_and_warden_stay_small(
    server: FakeServer, agent: AgentProcess, record_property: pytest.RecordProperty
) -> None:
    for number in range(5):
        await server.assign(f"j{number}", "for i in range(2000): log('x' * 100)")
        await server.ended(f"j{number}")
    agent_mb, warden_mb = (_resident_mb(pid) for pid in (agent.pid, agent.warden))
    record_property("agent_mb", agent_mb)
    record_property("warden_mb", warden_mb)
    assert agent_mb < 40
    assert agent_mb + warden_mb < 55


def _resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def _environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def _started_with_a_token_pipe(server: FakeServer, directory: Path) -> AgentProcess:
    read, write = os.pipe()
    os.write(write, TOKEN.encode())
    os.close(write)
    agent = AgentProcess(server, directory / "state")
    options = ["--url", server.url, "--state-dir", str(agent.state), "--token-fd", str(read)]
    with agent.log_path.open("wb") as log:
        agent.process = subprocess.Popen(
            [sys.executable, "-m", "farhand_worker", *options], stderr=log, pass_fds=[read]
        )
    os.close(read)
    return agent


async def test_a_worker_that_is_told_to_drain_says_when_it_has_and_stays(
    server: FakeServer, agent: AgentProcess
) -> None:
    """It is there to be told to go on, and says how many slots it was given when it comes back."""
    await server.assign("j", "value = outcomes.get()")
    await until(lambda: server.record("j").events["engine"], "it started")
    await server.send(Set(parallel=3, draining=True))
    await server.send(Probe())
    beats = len(server.beats)
    await until(lambda: len(server.beats) > beats, "it answers")
    assert server.drained == []
    await server.outcome("j", "k", {})
    await until(lambda: server.drained, "it says that nothing is left")
    server.cut()
    await server.attached(2)
    assert (server.hellos[1].parallel, server.hellos[1].draining) == (3, False)
    await server.send(Set(draining=False))
    await server.assign("k")
    await server.ended("k")
    assert len(server.drained) == 1
    await server.send(Set(parallel=9999))
    await until(lambda: "--parallel 9999 is above the" in agent.log, "it warns of slots given later, too")
