"""What an agent does with jobs that wait on a slot behind another."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from farhand_worker.protocol import Recall, Set
from tests.integration.agent_server import SLEEP, STEADY, AgentProcess, FakeServer, digest_of, until

pytestmark = pytest.mark.anyio
TIMES = replace(STEADY, behind_s=600.0)
"""Those of workers that give nothing back for want of patience."""

LONG = "import time; log('begun'); " + SLEEP
"""What has the slot, until somebody ends it."""


async def in_line(server: FakeServer, first: str, *codes: str) -> None:
    """``j1`` has the slot, ``j2`` and so on wait behind it."""
    await server.assign("j1", first, lease=1)
    if first == LONG:
        await server.line("j1", "begun", lease=1)
    for number, code in enumerate(codes, 2):
        await server.assign(f"j{number}", code, lease=number, behind=1)


async def returned(server: FakeServer, job: int, why: str) -> None:
    kind, body = await server.ended(f"j{job}", lease=job)
    assert (kind, body["reason"], body["message"]) == ("exit", "returned", why)
    assert server.record(f"j{job}", job).events["engine"] == []


async def test_jobs_of_one_line_run_one_after_another_in_one_engine(
    server: FakeServer, agent: AgentProcess
) -> None:
    assert server.hellos[0].several
    assert server.hellos[0].ahead
    await in_line(server, "value = 1", "value = 2", "value = 3")
    spans: list[tuple[float, float, int]] = []
    for number in (1, 2, 3):
        await server.ended(f"j{number}", lease=number)
        begun, ended = (event[1] for event in server.record(f"j{number}", number).events["engine"])
        assert ended["value"]["text"] == str(number)
        spans.append((begun["at"], ended["at"], begun["pid"]))
    assert spans == sorted(spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert len({pid for *_, pid in spans}) == 1


@pytest.mark.parametrize(("size", "ahead"), [(8, True), (2**30, False)])
async def test_small_arguments_come_while_their_job_waits_and_are_handed_over_with_it(
    server: FakeServer, agent: AgentProcess, size: int, ahead: bool
) -> None:
    digest = digest_of(b"an input")
    server.blobs[digest] = b"an input"
    named = {"enc": "json", "digest": digest, "size": size}
    await server.assign("j1", "log('begun'); value = outcomes.get()")
    await server.line("j1", "begun")
    reads = "path = job['args_path']; value = path and open(path).read()"
    await server.assign("j2", reads, lease=2, behind=1, args=named)
    await until(lambda: server.record("j2", 2).accepted, "j2 is accepted")
    if ahead:
        await until(lambda: any(digest in path for path in server.gets), "its arguments are fetched")
    assert any(digest in path for path in server.gets) == ahead
    await server.outcome("j1", "key", {"state": "completed"})
    _, body = await server.ended("j2", lease=2)
    assert json.loads(body["value"]["text"]) == ("an input" if ahead else None)


async def test_a_job_that_waits_is_accepted_and_told_of_in_hello(
    server: FakeServer, agent: AgentProcess
) -> None:
    await in_line(server, LONG, "value = 2")
    await until(lambda: server.record("j2", 2).accepted, "j2 is accepted")
    server.cut()
    await server.attached(2)
    held = {(line["job"], line["started_at"] is None, line["ended"]) for line in server.hellos[1].held}
    assert held == {("j1", False, False), ("j2", True, False)}


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Recall("j2", 2), "another slot is free for it"),
        (Set(draining=True), "the worker takes nothing new"),
        (Set(parallel=0), "the worker has fewer slots now"),
    ],
    ids=["recall", "drain", "fewer"],
)
async def test_an_order_gives_back_what_waits_and_leaves_what_runs(
    server: FakeServer, agent: AgentProcess, order: Any, why: str
) -> None:
    await in_line(server, LONG, "value = 2")
    await server.send(order)
    await returned(server, 2, why)
    assert server.record("j1", 1).final is None


async def test_a_signal_gives_back_what_waits_once_the_server_knows_that_nothing_new_is_taken(
    server: FakeServer, agent: AgentProcess
) -> None:
    await in_line(server, LONG, "value = 2")
    await until(lambda: server.record("j2", 2).accepted, "j2 is accepted")
    agent.signal(signal.SIGTERM)
    await returned(server, 2, "the worker takes nothing new")
    assert [hello.draining for hello in server.hellos] == [False, True]
    assert server.record("j1", 1).final is None


async def test_a_recall_of_what_has_begun_changes_nothing(server: FakeServer, agent: AgentProcess) -> None:
    await in_line(server, LONG)
    await server.send(Recall("j1", 1))
    await server.send(Recall("unknown", 7))
    await server.cancel("j1", 1)
    assert (await server.ended("j1", 1))[1]["reason"] == "cancelled"


async def test_one_that_waits_is_cancelled_at_once_and_the_next_keeps_its_place(
    server: FakeServer, agent: AgentProcess
) -> None:
    await in_line(server, LONG, "value = 2", "value = 3")
    await server.cancel("j2", 2)
    assert (await server.ended("j2", 2))[1]["reason"] == "cancelled"
    assert server.record("j1", 1).final is None
    assert server.record("j3", 3).final is None
    await server.cancel("j1", 1)
    assert (await server.ended("j3", 3))[0] in ("result", "exit")


async def test_an_engine_that_dies_takes_none_with_it_that_waits(
    server: FakeServer, agent: AgentProcess
) -> None:
    await in_line(
        server, "import os, time; time.sleep(0.2); os.kill(os.getpid(), 9)", "value = 2", "value = 3"
    )
    assert (await server.ended("j1", 1))[1]["reason"] == "crashed"
    for job in (2, 3):
        await returned(server, job, "the engine of the one before it ended")


async def test_nobody_waits_for_long_behind_what_takes_long(tmp_path: Path) -> None:
    server = await FakeServer(replace(STEADY, behind_s=0.05)).start()
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        await server.attached()
        await in_line(server, LONG, "value = 2", "value = 3")
        for job in (2, 3):
            await returned(server, job, "the one before it on its slot takes long")
        assert server.record("j1", 1).final is None
    finally:
        agent.close()
        await server.close()


async def test_an_agent_that_is_killed_leaves_no_job_that_waits_unanswered(
    server: FakeServer, agent: AgentProcess
) -> None:
    await in_line(server, LONG, "value = 2")
    await until(lambda: server.record("j2", 2).accepted, "j2 is accepted")
    agent.signal(signal.SIGKILL)
    await agent.exit_code()
    agent.start()
    for job in (1, 2):
        assert (await server.ended(f"j{job}", job))[1]["reason"] == "crashed"
    assert server.record("j2", 2).events["engine"] == []
