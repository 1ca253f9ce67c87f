"""What an agent does with a job: real processes, a server of the test's own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.agent_server import (
    SLEEP,
    STEADY,
    STUBBORN,
    AgentProcess,
    FakeServer,
    alive,
    digest_of,
    stubborn,
    until,
)

pytestmark = pytest.mark.anyio
TIMES = STEADY


@pytest.fixture
async def agent(server: FakeServer, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    agent = AgentProcess(server, tmp_path / "state").start(A_TOKEN="hidden", PLAIN="shown", FARHAND_HOME="/x")
    await server.attached()
    yield agent
    agent.close()


async def test_an_attached_worker_runs_a_job_and_reports_every_line_before_the_result(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign(
        "j", "import os; log('one'); os.write(1, b'raw'); os.write(2, b' bytes\\n'); value = 7"
    )
    kind, body = await server.ended("j")
    record = server.record("j")
    assert (kind, body["state"], body["value"]["text"]) == ("result", "completed", "7")
    assert record.texts("engine") == ["one"]
    assert record.texts("agent") == ["raw bytes"]
    assert server.story[-1] == "engine result of j-1"
    assert record.accepted == 1
    await until(
        lambda: not list((agent.state / "spool").iterdir()), "the spool is deleted after the last ack"
    )


async def test_an_engine_stays_warm_for_the_next_job_of_the_same_bundle(
    server: FakeServer, agent: AgentProcess
) -> None:
    pids = []
    for name in ("a", "b"):
        await server.assign(name)
        await server.ended(name)
        pids.append(server.record(name).events["engine"][0][1]["pid"])
    assert pids[0] == pids[1]


async def test_a_retired_engine_takes_no_other_job(server: FakeServer, agent: AgentProcess) -> None:
    await server.assign("a", "retire = True")
    await server.ended("a")
    await server.assign("b")
    await server.ended("b")
    first, second = (server.record(name).events["engine"][0][1]["pid"] for name in "ab")
    assert first != second
    await until(lambda: not alive(first), "the retired engine ends")


async def test_user_code_sees_an_environment_without_credentials_and_without_farhand(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "import os; value = dict(os.environ)")
    _, body = await server.ended("j")
    seen = json.loads(body["value"]["text"])
    assert "A_TOKEN" not in seen
    assert seen["PLAIN"] == "shown"
    assert seen["PYTHONUNBUFFERED"] == "1"
    assert [name for name in seen if name.startswith("FARHAND_")] == ["FARHAND_ENGINE"]
    assert "A_TOKEN" in agent.log
    assert "hidden" not in agent.log


async def test_the_same_assign_again_is_accepted_again_and_not_run_twice(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "cancelled.wait(60)")
    await until(lambda: server.record("j").events["engine"], "it started")
    await server.assign("j", "cancelled.wait(60)")
    await until(lambda: server.record("j").accepted == 2, "accepted again")
    await server.cancel("j")
    await server.ended("j")
    assert [e[0] for e in server.record("j").events["engine"]] == ["started", "result"]


async def test_a_newer_lease_of_a_job_ends_the_older_engine_first(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "import time\n" + SLEEP)
    await until(lambda: server.record("j").events["engine"], "it started")
    older = server.record("j").events["engine"][0][1]["pid"]
    await server.assign("j", f"import os; value = os.path.exists('/proc/{older}')", lease=2)
    _, body = await server.ended("j", 2)
    assert body["value"]["text"] == "false"


async def test_a_cancelled_job_ends_by_itself_when_it_can(server: FakeServer, agent: AgentProcess) -> None:
    await server.assign("j", "cancelled.wait(60)")
    await until(lambda: server.record("j").events["engine"], "it started")
    began = time.monotonic()
    await server.cancel("j")
    kind, body = await server.ended("j")
    assert (kind, body["state"]) == ("result", "cancelled")
    assert time.monotonic() - began < 0.5


async def test_a_job_that_ignores_its_cancellation_is_killed_after_the_grace_with_all_it_started(
    server: FakeServer, agent: AgentProcess
) -> None:
    """B025: a child that called setsid and ignores SIGTERM."""
    await server.assign("j", STUBBORN + "import signal; signal.pthread_sigmask(0, [15])\n" + SLEEP)
    engine, child = await stubborn(server, "j")
    await server.cancel("j")
    kind, body = await server.ended("j")
    assert (kind, body["reason"]) == ("exit", "cancelled")
    assert not alive(engine)
    assert not alive(child)


async def test_sigterm_reaches_the_group_before_the_grace_is_over(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign(
        "j",
        "import subprocess; value = subprocess.run(['sleep', '60']).returncode",
        settings={"grace_s": 5.0},
    )
    await until(lambda: server.record("j").events["engine"], "it started")
    began = time.monotonic()
    await server.cancel("j")
    kind, body = await server.ended("j")
    assert (kind, body["reason"], body["signal"]) == ("exit", "cancelled", 15)
    assert time.monotonic() - began < 3


async def test_a_job_that_outlives_its_timeout_and_grace_is_killed(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "import time\n" + SLEEP, timeout_s=0.3)
    kind, body = await server.ended("j")
    assert (kind, body["reason"]) == ("exit", "timeout")
    assert "0.3 s" in body["message"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os._exit(3)", "exit 3"),
        ("import os; os.kill(os.getpid(), 11)", "signal 11"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9, possibly out of memory"),
    ],
)
async def test_the_last_word_says_how_the_engine_died(
    server: FakeServer, agent: AgentProcess, code: str, message: str
) -> None:
    """B011: and the worker goes on taking jobs."""
    await server.assign("j", f"import os; os.write(1, b'last words')\n{code}")
    kind, body = await server.ended("j")
    assert (kind, body["reason"], body["message"]) == ("exit", "crashed", message)
    assert server.record("j").texts("agent") == ["last words"]
    await server.assign("k")
    assert (await server.ended("k"))[1]["state"] == "completed"


async def test_what_a_dead_engine_had_started_is_gone_when_its_end_is_reported(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", STUBBORN + "outcomes.get()\nimport os; os._exit(1)")
    _, child = await stubborn(server, "j")
    await server.outcome("j", "k", {})
    await server.ended("j")
    assert not alive(child)


async def test_a_bundle_that_cannot_be_fetched_is_said_and_nothing_was_started(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", bundle="sha256:" + "0" * 64)
    kind, body = await server.ended("j")
    assert (kind, body["reason"]) == ("exit", "not_started")
    assert "404" in body["message"]
    assert server.record("j").accepted == 1


async def test_a_bundle_that_is_not_its_digest_is_never_used(server: FakeServer, agent: AgentProcess) -> None:
    wrong = digest_of(b"other")
    server.blobs[wrong] = b"corrupt"
    await server.assign("j", bundle=wrong)
    _, body = await server.ended("j", timeout_s=15)
    assert body["reason"] == "not_started"
    assert not list((agent.state / "bundles").iterdir())


async def test_a_value_is_uploaded_before_the_event_that_names_it(
    server: FakeServer, agent: AgentProcess
) -> None:
    content = os.urandom(300_000)
    digest = digest_of(content)
    saved = agent.state / "outgoing" / "j-1"
    saved.mkdir()
    (saved / digest[7:]).write_bytes(content)
    await server.assign("j", f"digests = ['{digest}']")
    await server.ended("j")
    assert server.blobs[digest] == content
    put = server.story.index(f"put {digest} for j-1")
    assert put < server.story.index("engine result of j-1")


async def test_an_engine_gets_a_blob_as_a_verified_file(server: FakeServer, agent: AgentProcess) -> None:
    digest = digest_of(b"an input")
    server.blobs[digest] = b"an input"
    await server.assign("j", f"value = open(ask('blob', {{'digest': '{digest}'}})['body']['path']).read()")
    assert (await server.ended("j"))[1]["value"]["text"] == '"an input"'
    await server.assign("k", f"value = 'error' in ask('blob', {{'digest': '{'sha256:' + '1' * 64}'}})")
    assert (await server.ended("k"))[1]["value"]["text"] == "true"


async def assign_with_arguments_to_come(server: FakeServer, program: str, size: int) -> None:
    """Job ``j`` under lease 2 for an engine that is warm; its arguments are asked for, and not given yet."""
    await server.assign("warm")
    await server.ended("warm")
    digest = digest_of(b"an input")
    server.blobs[digest] = b"an input"
    server.gives.clear()
    await server.assign("j", program, lease=2, args={"enc": "json", "digest": digest, "size": size})
    await until(lambda: any(digest in path for path in server.gets), "its arguments are asked for")


@pytest.mark.parametrize(("size", "here"), [(8, True), (2**30, False)])
async def test_a_job_is_handed_over_with_small_arguments_and_before_large_ones(
    server: FakeServer, agent: AgentProcess, size: int, here: bool
) -> None:
    await assign_with_arguments_to_come(server, "value = job['args_path'] is not None", size)
    if here:
        server.gives.set()
    _, body = await server.ended("j", lease=2)
    assert json.loads(body["value"]["text"]) == here
    server.gives.set()


async def test_of_arguments_that_do_not_come_the_engine_is_told(
    server: FakeServer, agent: AgentProcess
) -> None:
    digest = digest_of(b"lost")
    asks = f"value = 'error' in ask('blob', {{'digest': '{digest}', 'read': True}})"
    await server.assign("j", asks, args={"enc": "json", "digest": digest, "size": 8})
    assert (await server.ended("j"))[1]["value"]["text"] == "true"


async def test_a_job_that_is_cancelled_while_its_arguments_come_does_not_begin(
    server: FakeServer, agent: AgentProcess
) -> None:
    await assign_with_arguments_to_come(server, "", 8)
    await server.cancel("j", lease=2)
    await server.ended("j", lease=2)
    assert server.record("j", 2).events["engine"] == []
    server.gives.set()
    await server.assign("k", lease=3)
    await server.ended("k", lease=3)


async def test_requests_and_outcomes_pass_through(server: FakeServer, agent: AgentProcess) -> None:
    await server.assign(
        "j", "log(str(ask('checkpoints', {'after': 0})['body']['more'])); value = outcomes.get()"
    )
    await server.line("j", "False")
    assert server.requests[0].kind == "checkpoints"
    await server.outcome("j", "key-1", {"state": "completed"})
    _, body = await server.ended("j")
    assert json.loads(body["value"]["text"])["key"] == "key-1"


async def test_output_that_is_no_text_or_very_long_comes_as_lines_all_the_same(
    server: FakeServer, agent: AgentProcess
) -> None:
    await server.assign("j", "import os; os.write(1, b'\\xff\\x00z\\n' + b'x' * 40000 + b'\\nafter\\n')")
    await server.ended("j")
    first, long, after = server.record("j").texts("agent")
    assert first == "\ufffd\0z"
    assert len(long) < 17_000
    assert long.endswith("(line cut)")
    assert after == "after"


async def test_a_thousand_lines_arrive_once_and_in_order(server: FakeServer, agent: AgentProcess) -> None:
    await server.assign("j", "for i in range(1000): log(str(i))")
    await server.ended("j")
    assert server.record("j").texts() == [str(i) for i in range(1000)]


@pytest.mark.fault("3.60")
async def test_few_descriptors_by_default_hold_up_no_worker_of_many_slots(
    server: FakeServer, tmp_path: Path
) -> None:
    """Some systems begin with 256. Engines keep the limit that the worker was started with."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -S -n 64\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    agent = AgentProcess(
        server, tmp_path / "state", "--parallel", "30", "--python", sys.executable, python=str(python)
    ).start()
    try:
        names = [f"j{number}" for number in range(25)]
        for name in names:
            await server.assign(name, "import resource\nlog(str(resource.getrlimit(7)[0]))\noutcomes.get()")
        await until(lambda: all(server.record(name).texts() for name in names), "all of them run at once")
        assert {server.record(name).texts()[0] for name in names} == {"64"}
        assert "Traceback" not in agent.log
    finally:
        agent.close()


async def test_a_job_that_cannot_be_put_on_disk_is_given_back_at_once_and_does_not_begin(
    server: FakeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    spool = agent.state / "spool"
    await server.assign("a")
    await server.ended("a")
    await until(lambda: not list(spool.iterdir()), "the spool is deleted after the last ack")
    spool.rename(tmp_path / "gone")
    spool.touch()
    await server.assign("b", f"open({str(tmp_path / 'begun')!r}, 'w')")
    await until(lambda: "cannot accept job b: " in agent.log, "the agent says so")
    await until(lambda: server.record("b").events["agent"], "it is given back")
    spool.unlink()
    (tmp_path / "gone").rename(spool)
    await until(lambda: server.troubles == ["its disk takes no file (Not a directory)", ""], "it is over")
    await server.assign("c")
    await server.ended("c")
    record = server.record("b")
    assert record.events["engine"] == []
    ((kind, end),) = record.events["agent"]
    assert (kind, end["reason"]) == ("exit", "stopped")
    assert "could not take it: its disk takes no file (Not a directory)" in end["message"]
    assert not (tmp_path / "begun").exists()
