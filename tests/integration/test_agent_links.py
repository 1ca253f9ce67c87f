"""The link between agent and server broken in every way: the same attempts go on, each line arrives once."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from farhand_worker.protocol import Refused
from tests.integration.agent_server import (
    PATIENT,
    SLEEP,
    STUBBORN,
    TENTH,
    AgentProcess,
    FakeServer,
    alive,
    digest_of,
    stubborn,
    until,
)

pytestmark = pytest.mark.anyio
TIMES = PATIENT
TICKS = "import time\nfor i in range(%d):\n    log(str(i)); time.sleep(0.01)\n"


async def _pass(seconds: float) -> None:
    end = time.monotonic() + seconds
    await until(lambda: time.monotonic() > end, "time passes", seconds + 5)


async def test_twenty_cut_connections_lose_no_line_and_double_none(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", TICKS % 600)
    for number in range(20):
        await server.line("j", str(number * 20))
        server.cut()
        await server.attached(number + 2)
    _, body = await server.ended("j")
    assert body["state"] == "completed"
    assert server.record("j").texts() == [str(i) for i in range(600)]
    assert len(server.hellos) > 20
    hello = server.hellos[-1]
    assert hello.session_key == "key"
    assert hello.incarnation == "inc"
    assert {h.instance for h in server.hellos} == {server.hellos[0].instance}


async def test_acknowledgements_that_are_lost_make_a_resend_that_is_not_recorded_twice(
    server: FakeServer, agent: AgentProcess
) -> None:
    server.acknowledges = False
    await server.assign("j", "log('one'); value = 1")
    await server.ended("j")
    server.acknowledges = True
    server.cut()
    await server.attached(2)
    assert [(h["job"], h["ended"]) for h in server.hellos[1].held] == [("j", True)]
    await until(lambda: not list((agent.state / "spool").iterdir()), "the spool is deleted")
    assert server.record("j").texts() == ["one"]


async def test_a_server_that_is_away_for_two_leases_costs_nothing_while_its_port_refuses(
    server: FakeServer, agent: AgentProcess
) -> None:
    """1.2: a refused connection is evidence, for at most outage_s."""
    await server.assign("j", TICKS % 500)
    await server.line("j", "10")
    pid = server.record("j").events["engine"][0][1]["pid"]
    await server.stop_listening()
    await _pass(2 * TENTH.lease_s)
    assert alive(pid)
    await server.start()
    _, body = await server.ended("j")
    assert body["state"] == "completed"
    assert server.record("j").texts() == [str(i) for i in range(500)]


async def test_a_strict_job_does_not_ride_out_an_outage(server: FakeServer, agent: AgentProcess) -> None:
    await server.assign("j", STUBBORN + SLEEP, strict=True)
    await server.assign("k", "import time\n" + SLEEP)
    engine, child = await stubborn(server, "j")
    await until(lambda: server.record("k").events["engine"], "k started")
    other = server.record("k").events["engine"][0][1]["pid"]
    await server.stop_listening()
    began = time.monotonic()
    await until(lambda: not alive(engine) and not alive(child), "the end of the strict one")
    assert time.monotonic() - began < TENTH.lease_s + 0.5
    assert alive(other)
    await server.start()
    kind, body = await server.ended("j")
    assert (kind, body["reason"]) == ("exit", "stopped")


async def test_an_outage_is_ridden_out_for_outage_s_and_no_longer(tmp_path: Path) -> None:
    server = await FakeServer(replace(TENTH, outage_s=1.0)).start()
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        await server.assign("j", STUBBORN + SLEEP)
        engine, child = await stubborn(server, "j")
        await server.stop_listening()
        began = time.monotonic()
        await until(lambda: not alive(engine) and not alive(child), "the end of the outage")
        assert 1.0 < time.monotonic() - began < 1.0 + TENTH.lease_s + 1
    finally:
        agent.close()
        await server.close()


async def test_a_link_that_passes_nothing_ends_the_engines_at_the_lease(
    server: FakeServer, agent: AgentProcess, record_property: pytest.RecordProperty
) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    server.stall()
    began = time.monotonic()
    await until(lambda: not alive(engine) and not alive(child), "the end at the lease")
    took = time.monotonic() - began
    record_property("seconds", took)
    assert TENTH.lease_s - TENTH.heartbeat_s - 0.1 < took < TENTH.lease_s + 0.5
    server.cut()
    server.go_on()
    kind, body = await server.ended("j")
    assert (kind, body["reason"]) == ("exit", "stopped")


async def test_half_a_lease_of_silence_costs_nothing(server: FakeServer, agent: AgentProcess) -> None:
    await server.assign("j", TICKS % 200)
    await server.line("j", "10")
    server.stall()
    await _pass(TENTH.lease_s / 2)
    server.go_on()
    await server.ended("j")
    assert server.record("j").texts() == [str(i) for i in range(200)]


async def test_a_server_that_answers_no_heartbeat_is_given_up_and_dialled_again(
    server: FakeServer, agent: AgentProcess
) -> None:
    """B118: the agent closes a connection that is open and dead, and dials another."""
    server.answers_beats = False
    await server.attached(2)
    assert "no answer for 0.9 s" in agent.log


async def test_a_fenced_job_is_killed_at_once_and_its_spool_deleted(
    server: FakeServer, agent: AgentProcess, record_property: pytest.RecordProperty
) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    began = time.monotonic()
    await server.fence("j")
    await until(lambda: not alive(engine) and not alive(child), "the end of the fenced")
    record_property("seconds", time.monotonic() - began)
    assert not list((agent.state / "spool").iterdir())
    assert server.record("j").final is None
    await server.assign("k")
    await server.ended("k")


async def test_a_job_fenced_in_the_welcome_ends(server: FakeServer, agent: AgentProcess) -> None:
    await server.assign("j", STUBBORN + SLEEP)
    engine, child = await stubborn(server, "j")
    server.fenced.add(("j", 1))
    server.cut()
    await until(lambda: not alive(engine) and not alive(child), "the end of the fenced")


async def test_a_job_cancelled_while_the_link_was_down_is_cancelled_at_the_welcome(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "cancelled.wait(60)")
    await until(lambda: server.record("j").events["engine"], "it started")
    server.cancelling.add("j")
    server.cut()
    _, body = await server.ended("j")
    assert body["state"] == "cancelled"


async def test_a_request_that_was_not_answered_is_asked_again(
    server: FakeServer, agent: AgentProcess
) -> None:
    server.stall()
    await server.assign("j", "value = ask('checkpoints', {'after': 3})['body']")
    server.cut()
    server.go_on()
    await server.attached(2)
    await server.assign("j", "value = ask('checkpoints', {'after': 3})['body']")
    await server.ended("j")
    assert server.requests[-1].args == {"after": 3}


async def test_a_final_refusal_ends_the_worker_with_exit_3(server: FakeServer, tmp_path: Path) -> None:
    server.refusal = Refused("namesake", "another worker has this name", final=True)
    agent = AgentProcess(server, tmp_path / "state").start()
    assert await agent.exit_code() == 3
    assert "another worker has this name" in agent.log


async def test_a_refusal_that_may_pass_is_waited_out(server: FakeServer, tmp_path: Path) -> None:
    server.refusal = Refused("wait", "the predecessor may still run", final=False)
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        await until(lambda: len(server.hellos) >= 2, "it tries again")
        server.refusal = None
        await until(lambda: "attached to" in agent.log, "it attaches")
    finally:
        agent.close()


@pytest.mark.parametrize(("status", "code"), [(401, 3), (403, 3), (404, 3)])
async def test_a_server_that_will_not_have_it_ends_it_with_a_sentence(
    server: FakeServer, tmp_path: Path, status: int, code: int
) -> None:
    server.status = status
    agent = AgentProcess(server, tmp_path / "state").start()
    assert await agent.exit_code() == code
    assert "refused: " in agent.log


async def test_a_proxy_whose_server_is_away_is_no_refusal(server: FakeServer, agent: AgentProcess) -> None:
    server.status = 502
    server.cut()
    await until(lambda: agent.log.count("the server answered 502") >= 2, "it keeps trying")
    server.status = None
    await server.attached(2)


async def test_an_upload_that_fails_is_tried_again_until_it_arrives(
    server: FakeServer, agent: AgentProcess
) -> None:
    content = b"y" * 100_000
    digest = digest_of(content)
    saved = agent.state / "outgoing" / "j-1"
    saved.mkdir()
    (saved / digest[7:]).write_bytes(content)
    await server.assign("warm")
    await server.ended("warm")
    server.status = 503
    await server.assign("j", f"digests = ['{digest}']")
    await until(lambda: "answered 503" in agent.log, "a failed upload")
    assert server.record("j").final is None
    server.status = None
    assert (await server.ended("j"))[1]["state"] == "completed"


async def test_heartbeats_come_at_their_time_while_a_job_floods_the_link(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign(
        "j", "import os\nfor i in range(20000): os.write(1, b'x' * 200 + b'\\n')", timeout_s=60
    )
    await server.ended("j", timeout_s=30)
    gaps = [later - earlier for earlier, later in zip(server.beats, server.beats[1:], strict=False)]
    assert len(server.record("j").events["agent"]) == 20000
    assert max(gaps, default=0) < TENTH.lease_s
