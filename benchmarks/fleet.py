"""A thousand workers, as light as clients can be: what they cost the server, and how soon a job is theirs.

``python -m benchmarks.fleet URL FILE`` is the process of the clients. Each speaks the protocol as
docs/protocol.md has it, and answers an assign with the start and the end of a run that did nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from farhand.cli.client import Client
from farhand.cli.stage import Stage

from .load import Caller
from .processes import cpu_s, memory_mb

COUNT = 1000
_OBSERVED_S = 15.0
_HANDOFFS = 300
_AT_ONCE = 50


def measure(stage: Stage) -> dict[str, float]:
    """Everything here, by the keys of `figures.ROWS`."""
    server = stage.start_server("--parallel", "1").process.pid
    client = Client(stage.url, lambda: stage.token)
    stage.wait("the server is ready", client.answers)
    stage.wait("the flows are known", lambda: bool(client.get("/flows")["items"]))
    alone = memory_mb(server)
    tokens = stage.directory / "tokens"
    tokens.write_text(json.dumps([_token(client, number) for number in range(COUNT)]))
    crowd = subprocess.Popen([sys.executable, "-m", "benchmarks.fleet", stage.url, str(tokens)])
    try:
        stage.wait("all workers are online", lambda: _online(client) >= COUNT, timeout_s=300)
        found = {"fleet_heartbeats": 100 * _busy(server), "fleet_memory": memory_mb(server) - alone}
        with Caller(stage.url, stage.token) as caller:
            times = sorted(_handoff_s(caller) for _ in range(_HANDOFFS))
        found["fleet_handoff_p99"] = times[int(len(times) * 0.99)] * 1e3
        return found
    finally:
        crowd.terminate()
        crowd.wait()


def _token(client: Client, number: int) -> str:
    wanted = {"name": f"sim-{number}", "role": "worker", "labels": ["sim"], "expires_s": 86400}
    return client.post("/workers/tokens", wanted)["token"]


def _online(client: Client) -> int:
    return sum(each["state"] == "online" for each in client.get("/workers")["items"])


def _busy(server: int) -> float:
    """The server's share of one core while all workers beat and nothing else happens."""
    before, began = cpu_s(server), time.perf_counter()
    time.sleep(_OBSERVED_S)
    return (cpu_s(server) - before) / (time.perf_counter() - began)


def _handoff_s(caller: Caller) -> float:
    """From the request until a worker has the assign of the run, by its clock, which is ours too."""
    asked_at = time.time()
    return float(caller.finish("noop_sim")) - asked_at


# ---------------------------------------------------------------- the clients


async def _attend(url: str, token: str, number: int, gate: asyncio.Semaphore) -> None:
    """One worker, for as long as the server keeps it."""
    address = url.replace("http", "ws", 1) + "/api/v1/workers/attach"
    async with gate:
        link = await connect(
            address, additional_headers={"Authorization": f"Bearer {token}"}, compression=None,
            ping_interval=None, max_queue=None,
        )  # fmt: skip
        who = {"name": f"sim-{number}", "instance": secrets.token_hex(8), "boot_id": "b", "host": "crowd"}
        what = {"protocol": [1, 1], "version": "0", "python": "3.11.0", "parallel": 1, "held": []}
        await link.send(json.dumps({"type": "hello", **who, **what}))
        welcome = json.loads(await link.recv())
    beats = asyncio.ensure_future(_beat(link, welcome["times"]["heartbeat_s"], number))
    try:
        async for text in link:
            message = json.loads(text)
            if message["type"] == "assign":
                await link.send(json.dumps(_done(message)))
    finally:
        beats.cancel()


async def _beat(link: ClientConnection, every_s: float, number: int) -> None:
    await asyncio.sleep(every_s * number / COUNT)
    for n in itertools.count(1):
        await link.send(f'{{"type":"heartbeat","n":{n},"at":{time.time()!r}}}')
        await asyncio.sleep(every_s)


def _done(assign: dict[str, Any]) -> dict[str, Any]:
    now = time.time()
    started = {"at": now, "pid": 1, "python": "3.11.0", "host": "crowd"}
    result = {"state": "completed", "at": now, "value": {"enc": "json", "text": repr(now)}}
    events = [["started", started], ["result", result]]
    holds = {"job": assign["job"], "lease": assign["lease"]}
    return {"type": "event", **holds, "source": "engine", "first": 1, "events": events}


async def _crowd(url: str, tokens: list[str]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)
    await asyncio.gather(*(_attend(url, token, number, gate) for number, token in enumerate(tokens)))


if __name__ == "__main__":
    asyncio.run(_crowd(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())))
