"""``async def`` flows in a real engine process."""

from __future__ import annotations

import json
import select
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Begin
from tests.integration.fake_agent import FakeAgent

CHAINS = """
import asyncio

@task
async def one(i):
    with open(os.environ["WITNESS"], "a") as file: file.write(f"one {i}\\n")
    return {"chain": i}

@task
async def two(part):
    if part["chain"] == int(os.environ["STUCK"]) and not os.path.exists(os.environ["GO"]):
        print("stuck", flush=True)
        await asyncio.sleep(60)
    with open(os.environ["WITNESS"], "a") as file: file.write(f"two {part['chain']}\\n")
    return part["chain"] * 10

@task
async def three(value):
    with open(os.environ["WITNESS"], "a") as file: file.write(f"three {value}\\n")
    return value + 1

async def chain(i):
    return await three(await two(await one(i)))

@flow
async def main(n: int = 6):
    return await asyncio.gather(*(chain(i) for i in range(n)))
"""


@pytest.mark.fault("2.14")
def test_chains_under_gather_that_are_killed_in_the_middle_run_only_what_is_left(
    begin: Begin,
    tmp_path: Path,
) -> None:
    witness = tmp_path / "witness"
    env = {"WITNESS": str(witness), "STUCK": "3", "GO": str(tmp_path / "go")}
    first = begin(CHAINS, **env)
    first.start("pipeline:main")
    first.until_event("checkpoint", 17 - 1)
    assert "stuck" in first.texts()
    first.process.kill()
    first.process.wait()
    first.keep_outcomes()
    done = set(witness.read_text().split("\n")) - {""}
    assert len(done) == 16
    (tmp_path / "go").touch()
    second = begin(CHAINS, **env)
    second.kept = first.kept
    second.run("pipeline:main")
    assert second.value() == [1, 11, 21, 31, 41, 51]
    lines = witness.read_text().split()
    assert len(lines) == 36, "each of the 18 calls was executed once"
    assert len(second.events("checkpoint")) == 2


def test_cancel_ends_an_async_flow_where_it_awaits(begin: Begin) -> None:
    agent = begin(
        "import asyncio\n"
        "@task\nasync def wait():\n"
        "    try: await asyncio.sleep(60)\n"
        "    finally: print('cleaned up')\n"
        "@flow\nasync def main():\n    print('on')\n    await asyncio.gather(wait(), wait())\n"
    )
    agent.start("pipeline:main")
    agent.until_event("task", 2)
    began = time.monotonic()
    agent.send("cancel", reason="cancelled")
    agent.until("done")
    assert time.monotonic() - began < 5
    assert agent.result()["state"] == "cancelled"
    assert agent.texts().count("cleaned up") == 2
    assert agent.run("pipeline:main", timeout_s=0.2)["reason"] == "timeout"


@pytest.mark.parametrize("awaits", ["save()", "asyncio.gather(save())", "asyncio.wait_for(save(), 60)"])
def test_what_a_cancelled_coroutine_saves_is_not_cut_short_by_sigterm(begin: Begin, awaits: str) -> None:
    """B033: it has the whole grace."""
    agent = begin(
        "import asyncio\n"
        "async def write():\n"
        "    try: {}['nothing']\n"
        "    except KeyError: await asyncio.sleep(0.5)\n"
        "    time.sleep(0.5)\n"
        "    await asyncio.sleep(0.2)\n"
        "    print('saved')\n"
        "@task\nasync def save():\n"
        "    try: await asyncio.sleep(60)\n"
        "    finally:\n"
        "        print('saving')\n"
        "        await write()\n"
        f"@flow\nasync def main(): await {awaits}\n"
    )
    agent.start("pipeline:main", grace_s=5.0)
    agent.until_event("task")
    agent.send("cancel", reason="cancelled")
    agent.until_event("log")
    agent.process.send_signal(15)
    agent.until("done")
    assert agent.result()["state"] == "cancelled"
    assert agent.texts() == ["saving", "saved"]


def test_a_coroutine_that_swallows_a_cancel_is_cancelled_again_by_sigterm(begin: Begin) -> None:
    agent = begin(
        "import asyncio\n"
        "@flow\nasync def main():\n"
        "    print('on')\n"
        "    try: await asyncio.sleep(60)\n"
        "    except asyncio.CancelledError:\n"
        "        print('swallowing')\n"
        "        await asyncio.sleep(0.5)\n"
        "    await asyncio.sleep(60)\n"
    )
    agent.start("pipeline:main")
    agent.until_event("log")
    agent.send("cancel", reason="cancelled")
    agent.until_event("log", 2)
    agent.process.send_signal(15)
    agent.until("done")
    assert agent.result()["state"] == "cancelled"


def test_a_blocked_loop_is_interrupted_by_the_second_cancel(begin: Begin) -> None:
    agent = begin("@flow\nasync def main():\n    print('on')\n    time.sleep(60)\n")
    agent.start("pipeline:main")
    agent.until_event("log")
    agent.send("cancel", reason="cancelled")
    agent.process.send_signal(15)
    agent.until("done")
    assert agent.result()["state"] == "cancelled"


def test_the_timeout_of_an_async_flow_strikes_a_blocked_loop(begin: Begin) -> None:
    agent = begin("@flow\nasync def main():\n    time.sleep(60)\n")
    result = agent.run("pipeline:main", timeout_s=0.1)
    assert (result["state"], result["reason"]) == ("failed", "timeout")


def test_a_placed_coroutine_is_awaited_there_and_here(begin: Begin) -> None:
    text = (
        "import asyncio\n"
        "@task(device='gpu')\nasync def fit(x):\n    await asyncio.sleep(0)\n    return x + 1\n"
        "@flow\nasync def main(): return await asyncio.gather(fit(1), fit(2))\n"
    )
    agent: FakeAgent = begin(text)
    agent.start("pipeline:main")
    calls = [agent.until_event("call", number) for number in (1, 2)]
    for call in calls:
        agent.outcome(call, value=json.loads(call["args"]["text"])[0][0] * 10)
    agent.until("done")
    assert agent.value() == [10, 20]
    agent.run("pipeline:fit", [[4], {}], kind="call", key="abc")
    assert agent.value() == 5


FIT = "import asyncio\n@task(device='gpu')\nasync def fit(x): ...\n"


@pytest.mark.parametrize(
    "waits",
    [
        "await fit(1)",
        "(await asyncio.gather(fit(1)))[0]",
        "await fit.submit(1)",
        "await asyncio.ensure_future(fit(1))",
    ],
)
@pytest.mark.parametrize("limits", [{}, {"timeout_s": 60.0, "settings": {"silence_timeout_s": 60.0}}])
def test_an_async_body_that_waits_for_placed_calls_alone_is_blocked(
    begin: Begin,
    waits: str,
    limits: dict[str, Any],
) -> None:
    agent: FakeAgent = begin(FIT + f"@flow\nasync def main(): return {waits}\n")
    agent.start("pipeline:main", **limits)
    call = agent.until_event("call")
    agent.until_event("blocked")
    agent.outcome(call, value=7)
    agent.until("done")
    assert [body["n"] for body in agent.events("unblocked")] == [1]
    assert agent.value() == 7


@pytest.mark.parametrize(
    "own",
    ["asyncio.sleep(0.2)", "asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.2)"],
)
def test_an_async_body_that_has_more_to_do_keeps_its_slot(begin: Begin, own: str) -> None:
    body = "async def main():\n    placed = asyncio.ensure_future(fit(1))\n"
    agent: FakeAgent = begin(
        FIT + f"@flow\n{body}    await {own}\n    print('on')\n    return await placed\n"
    )
    agent.start("pipeline:main")
    call = agent.until_event("call")
    agent.until_event("log")
    assert agent.events("blocked") == []
    agent.until_event("blocked")
    agent.outcome(call, value=7)
    agent.until("done")
    assert agent.value() == 7


def test_a_blocked_async_body_that_is_cancelled_does_not_wait_for_its_slot(begin: Begin) -> None:
    agent: FakeAgent = begin(FIT + "@flow\nasync def main(): return await fit(1)\n")
    agent.let_go_on = lambda: None  # type: ignore[method-assign]
    agent.start("pipeline:main")
    agent.until_event("blocked")
    agent.send("cancel", reason="cancelled")
    agent.until("done")
    assert agent.result()["state"] == "cancelled"


def test_a_blocked_async_body_whose_time_is_up_does_not_wait_for_its_slot(begin: Begin) -> None:
    agent: FakeAgent = begin(FIT + "@flow\nasync def main(): return await fit(1)\n")
    agent.let_go_on = lambda: None  # type: ignore[method-assign]
    result = agent.run("pipeline:main", timeout_s=0.3)
    assert (result["state"], result["reason"]) == ("failed", "timeout")
    assert len(agent.events("blocked")) == 1


@pytest.mark.parametrize("body", ["async def main(): return await fit(1)", "def main(): return fit(1)"])
def test_the_time_for_which_a_job_is_blocked_is_no_silence(begin: Begin, body: str) -> None:
    text = FIT if body.startswith("async") else FIT.replace("async def", "def")
    agent: FakeAgent = begin(text + f"@flow\n{body}\n")
    agent.start("pipeline:main", settings={"silence_timeout_s": 0.2})
    call = agent.until_event("call")
    agent.until_event("blocked")
    while select.select([agent.sock], [], [], 0.5)[0]:  # twice as long as it may be silent, at least
        frame = agent.receive()
        assert frame is not None
        assert frame["type"] in ("bell", "blocked")
    agent.outcome(call, value=7)
    agent.until("done")
    assert agent.value() == 7
