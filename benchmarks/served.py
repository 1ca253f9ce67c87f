"""What is measured against a real server and a real worker, over loopback."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from farhand.cli.client import Client
from farhand.cli.stage import Stage

from .load import Caller, is_healthy, start_runs
from .processes import agent_of, memory_mb, spent

FLOWS = Path(__file__).resolve().parent / "flows"
_IDLE_S = 3.0
_CLIENTS = 4


def measure(stage: Stage) -> dict[str, float]:
    """Everything here, by the keys of `figures.ROWS`."""
    began = time.perf_counter()
    server = stage.start_server("--parallel", "2").process.pid
    client = Client(stage.url, lambda: stage.token)
    while not is_healthy(stage.url):
        time.sleep(0.005)
    found = {"server_start": time.perf_counter() - began}
    _set_up(stage, client)
    time.sleep(_IDLE_S)
    found["idle_memory"] = memory_mb(server)
    with Caller(stage.url, stage.token) as caller:
        for _ in range(3):  # warms the engines of both
            caller.finish("noop")
        times = _dispatch(caller)
    found["dispatch"], found["dispatch_p99"] = statistics.median(times) * 1e3, _at(times, 0.99) * 1e3
    found |= _runs(stage, server)
    with Caller(stage.url, stage.token) as caller:
        found["task_served"] = _task(caller) * 1e6
        found["log_lines"] = _log_lines(caller)
    return found


def _set_up(stage: Stage, client: Client) -> None:
    stage.wait("the server is ready", client.answers)
    stage.wait("the flows are known", lambda: bool(client.get("/flows")["items"]))
    wanted = {"name": "bench", "role": "worker", "labels": ["bench"], "expires_s": 86400}
    stage.start_worker("bench", client.post("/workers/tokens", wanted)["token"], "--parallel", "2")
    stage.wait("both workers are online", lambda: _online(client) == 2)


def _online(client: Client) -> int:
    return sum(worker["state"] == "online" for worker in client.get("/workers")["items"])


def _dispatch(caller: Caller, count: int = 200) -> list[float]:
    """From before the request until user code begins, with a warm engine free."""
    times: list[float] = []
    for _ in range(count):
        asked_at = time.time()
        times.append(caller.finish("noop") - asked_at)
    return times


def _at(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def _rate(stage: Stage, flow: str, count: int) -> float:
    return count / start_runs(stage.url, stage.token, flow, count, _CLIENTS)


def _runs(stage: Stage, server: int, count: int = 800) -> dict[str, float]:
    agent = agent_of(stage.home / "local")
    before = spent(server, agent)
    rate = _rate(stage, "noop", count)
    return {"runs": rate, **spent(server, agent).since(before, count)}


def _task(caller: Caller, count: int = 20_000) -> float:
    """A task's share of the time from the first call until the run is seen to have ended, all recorded."""
    began_at = caller.finish("many_tasks", count=count)
    return (time.time() - began_at) / count


def _log_lines(caller: Caller, count: int = 50_000) -> float:
    """From the first line until the run, with all its lines stored, is seen to have ended."""
    began_at = caller.finish("many_lines", count=count)
    return time.time() - began_at
