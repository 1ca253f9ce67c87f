"""What an agent does between the result of a job and the word of its engine that it has cleared up."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.harness.processes import send
from tests.integration.agent_server import STEADY, AgentProcess, FakeServer, alive, until

pytestmark = pytest.mark.anyio
TIMES = STEADY

GATED = """
import os, time
def clear():
    while not os.path.exists({gate!r}):
        time.sleep(0.005)
os.write(1, b"the last of its lines")
value = os.getpid()
"""
"""Has a result, and clears up until a file is there."""

WAIT = """
import os
while not os.path.exists({gate!r}):
    time.sleep(0.005)
"""

STUCK = "import os, time\ndef clear(): time.sleep(600)\nvalue = os.getpid()"

PATIENT = {"grace_s": 60.0}


async def test_a_result_is_reported_before_its_engine_has_cleared_up_and_the_next_job_waits_for_that(
    server: FakeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    await server.assign("one", GATED.format(gate=str(gate)), settings=PATIENT)
    kind, body = await server.ended("one")
    assert (kind, body["state"]) == ("result", "completed")
    assert server.record("one").texts("agent") == ["the last of its lines"]
    await server.assign("two", "import os; value = os.getpid()", lease=2)
    await until(lambda: server.record("two", 2).accepted, "the next job is accepted")
    assert server.record("two", 2).events["engine"] == []
    gate.touch()
    assert (await server.ended("two", 2))[1]["value"] == body["value"]
    await until(lambda: not list((agent.state / "spool").iterdir()), "both are let go")


async def test_a_job_that_comes_again_while_the_engine_of_its_last_attempt_clears_up_is_next_on_that(
    server: FakeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    await server.assign("one", GATED.format(gate=str(gate)), settings=PATIENT)
    body = (await server.ended("one"))[1]
    await server.assign("one", "import os; value = os.getpid()", lease=2)
    await until(lambda: server.record("one", 2).accepted, "the next attempt is accepted")
    gate.touch()
    kind, again = await server.ended("one", 2)
    assert (kind, again["value"]) == ("result", body["value"])
    await until(lambda: not list((agent.state / "spool").iterdir()), "both are let go")


async def test_an_engine_whose_kill_is_under_way_takes_no_other_job(
    server: FakeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    gate, cleared, later = (tmp_path / name for name in ("gate", "cleared", "later"))
    code = f"import os, time\ndef clear(): open({str(cleared)!r}, 'w')\n"
    await server.assign("one", code + WAIT.format(gate=str(gate)))
    await until(lambda: server.record("one").events["engine"], "it has begun")
    warden = agent.warden
    send(warden, signal.SIGSTOP)  # as one that waits for a processor
    await server.fence("one")
    await until(lambda: "job one is not ours any more" in agent.log, "its kill is ordered")
    gate.touch()
    await until(cleared.exists, "it ends by itself before that")
    await server.assign("two", "import time\n" + WAIT.format(gate=str(later)), lease=2)
    await until(lambda: server.record("two", 2).accepted, "the next job is accepted")
    send(warden, signal.SIGCONT)
    later.touch()
    kind, body = await server.ended("two", 2)
    assert (kind, body["state"]) == ("result", "completed")


async def test_an_engine_that_ends_while_it_clears_up_takes_nothing_from_its_result(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("one", "import os\ndef clear(): os._exit(3)\nvalue = os.getpid()")
    kind, body = await server.ended("one")
    assert (kind, body["state"]) == ("result", "completed")
    await until(lambda: not list((agent.state / "spool").iterdir()), "it is let go")
    assert [event[0] for event in server.record("one").events["agent"]] == []
    await server.assign("two", "import os; value = os.getpid()", lease=2)
    assert (await server.ended("two", 2))[1]["value"] != body["value"]


async def test_an_engine_that_does_not_come_to_an_end_of_clearing_up_is_killed(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("one", STUCK, settings={"grace_s": 0.3})
    body = (await server.ended("one"))[1]
    assert body["state"] == "completed"
    await until(lambda: not alive(int(body["value"]["text"])), "its engine is killed")
    await until(lambda: not list((agent.state / "spool").iterdir()), "it is let go")


async def test_a_result_is_not_reported_again_in_a_session_that_finds_its_engine_clearing_up(
    server: FakeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    await server.assign("one", GATED.format(gate=str(gate)), settings=PATIENT)
    await server.ended("one")
    server.cut()
    await server.attached(2)
    assert [(line["job"], line["ended"]) for line in server.hellos[1].held] == [("one", True)]
    gate.touch()
    await until(lambda: not list((agent.state / "spool").iterdir()), "it is let go")
    assert server.story.count("engine result of one-1") == 1


async def test_a_worker_whose_directories_were_cleared_away_begins_jobs_as_before(
    server: FakeServer, agent: AgentProcess
) -> None:
    """Temporary files that nobody touched for days: what was made at its start and is empty is among them."""
    await server.attached()
    for name in ("scratch", "spool", "outgoing"):
        shutil.rmtree(agent.state / name)
    await server.assign("one", "import os; value = os.getpid()", settings={"isolated": True})
    await server.assign("two", "import os; value = os.getpid()", lease=2)
    assert (await server.ended("one"))[0] == (await server.ended("two", 2))[0] == "result"
