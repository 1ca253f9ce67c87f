"""What is measured against a real server and a real worker, over loopback."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from farhand.cli.client import Client
from farhand.cli.stage import Stage

FLOWS = Path(__file__).resolve().parent / "flows"
ENDED = {"completed", "failed", "cancelled", "crashed"}
_LOOK_S = 0.002


def set_up(stage: Stage) -> Client:
    """A server with two slots, and a worker with two that has the label ``bench``."""
    stage.start_server("--parallel", "2")
    client = Client(stage.url, lambda: stage.token)
    stage.wait("the server answers", client.answers)
    stage.wait("the flows are known", lambda: bool(client.get("/flows")["items"]))
    wanted = {"name": "bench", "role": "worker", "labels": ["bench"], "expires_s": 86400}
    stage.start_worker("bench", client.post("/workers/tokens", wanted)["token"], "--parallel", "2")
    stage.wait("both workers are online", lambda: online(client) == 2)
    return client


def online(client: Client) -> int:
    """How many workers are online."""
    return sum(worker["state"] == "online" for worker in client.get("/workers")["items"])


def finish(client: Client, flow: str, **params: Any) -> Any:
    """Run a flow to its end and return its result."""
    run = client.post(f"/flows/{flow}/runs", {"params": params})
    while run["state"] not in ENDED:
        time.sleep(_LOOK_S)
        run = client.get(f"/runs/{run['id']}")
    if run["state"] != "completed":
        raise RuntimeError(f"{flow} ended {run['state']}: {run['message']}")
    return run["result"]


def runs_a_second(client: Client, count: int = 400) -> float:
    """No-op runs a second, all asked for at once by eight clients, through two warm engines."""
    began = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda _: client.post("/flows/noop/runs", {}), range(count)))
    while client.get(f"/runs/{started[-1]['id']}")["state"] not in ENDED or _open(client):
        time.sleep(_LOOK_S * 10)
    return count / (time.perf_counter() - began)


def _open(client: Client) -> bool:
    return any(
        client.get("/runs", flow="noop", state=s, limit=1)["items"] for s in ("queued", "starting", "running")
    )


def dispatch_s(client: Client, count: int = 60) -> float:
    """From before the request until user code begins, with a warm engine free; the median."""
    times: list[float] = []
    for _ in range(count):
        asked_at = time.time()
        times.append(finish(client, "noop") - asked_at)
    return statistics.median(times)


def task_s(client: Client, count: int = 2000) -> float:
    """A call of a task that does nothing, inside a run; the mean."""
    return float(finish(client, "many_tasks", count=count))


def remote_call_s(client: Client, count: int = 60) -> float:
    """A placed call that does nothing, from the server's engine to the worker's and back; the median."""
    return statistics.median(finish(client, "remote_calls", count=count))
