"""What is measured of workers: placed calls, large values, files, and how soon a loss is met."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil

from farhand.cli.client import Client
from farhand.cli.stage import Stage

from .load import ENDED, RARELY_S, SELDOM_S, Caller, start_runs
from .processes import agent_of, cpu_s

_FILE_BYTES = 128 * 1024 * 1024
_CLIENTS = 4


def measure(stage: Stage) -> dict[str, float]:
    """Everything here, by the keys of `figures.ROWS`."""
    stage.start_server("--parallel", "2")
    client = Client(stage.url, lambda: stage.token)
    stage.wait("the server is ready", client.answers)
    stage.wait("the flows are known", lambda: bool(client.get("/flows")["items"]))
    add_worker(stage, client, "bench", "--parallel", "2")
    with Caller(stage.url, stage.token) as caller:
        for _ in range(3):  # warms the engines of both
            caller.finish("noop")
            caller.finish("remote_calls", count=2)
        found = _calls(caller) | _megabytes(stage, caller)
        found["spill"] = _spill_s(caller) * 1e3
        found["cancel"] = _cancel_s(caller) * 1e3
    found["artifacts"] = 100 * _copy_s(stage.directory) / _fetch_s(stage)
    found["remote_runs"] = 300 / start_runs(stage.url, stage.token, "noop_there", 300, _CLIENTS)
    found |= _losses(stage, client)
    return found


def add_worker(stage: Stage, client: Client, label: str, *options: str) -> float:
    """Start a worker with a label that is its name too; when it had attached, by the server's clock."""
    wanted = {"name": label, "role": "worker", "labels": [label], "expires_s": 86400}
    stage.start_worker(label, client.post("/workers/tokens", wanted)["token"], *options)
    stage.wait("the worker is online", lambda: state_of(client, label) == "online")
    return client.get(f"/workers/{label}")["attached_at"]


def state_of(client: Client, name: str) -> str:
    """A worker's state; empty for one that never was there."""
    return next((each["state"] for each in client.get("/workers")["items"] if each["name"] == name), "")


# ---------------------------------------------------------------- calls and values


def _calls(caller: Caller) -> dict[str, float]:
    times = caller.finish("remote_calls", SELDOM_S, count=200)
    found = {"remote_call": statistics.median(times) * 1e3}
    found["remote_calls"] = 1000 / caller.finish("remote_map", SELDOM_S, count=1000)
    return found


def _megabytes(stage: Stage, caller: Caller) -> dict[str, float]:
    """How fast 1 MiB goes to a call and back, and what that costs those who carry it."""
    count = 20
    server = stage.programs[0].process.pid
    agents = [agent_of(state) for state in (stage.home / "local", stage.directory / "bench" / "state")]
    before = cpu_s(server), sum(map(cpu_s, agents))
    took_s = caller.finish("remote_megabytes", RARELY_S, count=count)
    return {
        "remote_megabyte": 2 * count * 1024 * 1024 / 1e6 / took_s,
        "megabyte_server": (cpu_s(server) - before[0]) / count * 1e3,
        "megabyte_agents": (sum(map(cpu_s, agents)) - before[1]) / count * 1e3,
    }


def _fetch_s(stage: Stage) -> float:
    """A file saved on the server, fetched by the worker for its engine and verified; the best of three."""
    with Caller(stage.url, stage.token) as caller:
        return min(caller.finish("file_there", SELDOM_S, size=_FILE_BYTES) for _ in range(3))


class _Plain(BaseHTTPRequestHandler):
    source: ClassVar[Path]

    def do_GET(self) -> None:
        """The whole file."""
        self.send_response(200)
        self.send_header("Content-Length", str(self.source.stat().st_size))
        self.end_headers()
        with self.source.open("rb") as file:
            while chunk := file.read(1024 * 1024):
                self.wfile.write(chunk)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


def _copy_s(directory: Path) -> float:
    """The same number of bytes over plain HTTP, from a file to a file that is synced; the best of three."""
    source, target = directory / "plain", directory / "copied"
    with source.open("wb") as file:
        for _ in range(_FILE_BYTES // (1024 * 1024)):
            file.write(os.urandom(1024 * 1024))
    handler = type("Handler", (_Plain,), {"source": source})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            return min(_copied_s(server.server_address[1], target) for _ in range(3))
        finally:
            server.shutdown()


def _copied_s(port: int, target: Path) -> float:
    began = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/")
    response = connection.getresponse()
    with target.open("wb") as file:
        while chunk := response.read(1024 * 1024):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    connection.close()
    return time.perf_counter() - began


# ---------------------------------------------------------------- how soon


def _start(caller: Caller, flow: str, **params: Any) -> str:
    return caller.send(caller.request("POST", f"/flows/{flow}/runs", {"params": params}))["id"]


def _until(caller: Caller, run: str, *states: str) -> dict[str, Any]:
    while (found := caller.get(f"/runs/{run}"))["state"] not in states:
        if found["state"] in ENDED:
            raise RuntimeError(f"run {run} is {found['state']}: {found['message']}")
        time.sleep(0.005)
    return found


def _end(caller: Caller, run: str) -> None:
    caller.send(caller.request("POST", f"/runs/{run}/cancel", {}))
    _until(caller, run, "cancelled")


def _spill_s(caller: Caller) -> float:
    """From the request until user code, with the server's slots taken: the median of 20."""
    busy = [_start(caller, "rest") for _ in range(2)]
    for run in busy:
        _until(caller, run, "running")
    caller.finish("noop")
    times: list[float] = []
    for _ in range(20):
        asked_at = time.time()
        times.append(caller.finish("noop") - asked_at)
    for run in busy:
        _end(caller, run)
    return statistics.median(times)


def _cancel_s(caller: Caller) -> float:
    """From the request until a run on the worker is seen cancelled; the median of five."""
    times: list[float] = []
    for _ in range(5):
        run = _start(caller, "rest_there")
        _until(caller, run, "running")
        began = time.perf_counter()
        _end(caller, run)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _losses(stage: Stage, client: Client) -> dict[str, float]:
    """Workers that come for a job that waits, that are killed, and that fall silent with all they run."""
    found: dict[str, float] = {}
    with Caller(stage.url, stage.token) as caller:
        waiting = _start(caller, "noop_late")
        attached_at = add_worker(stage, client, "late")
        found["attach"] = (_until(caller, waiting, "completed")["result"] - attached_at) * 1e3
        run = _start(caller, "rest_late")
        _until(caller, run, "running")
    began = time.perf_counter()
    os.kill(agent_of(stage.directory / "late" / "state"), signal.SIGKILL)
    stage.programs.pop().process.wait()
    stage.wait("the worker is lost", lambda: state_of(client, "late") in ("lost", "offline"))
    found["agent_death"] = time.perf_counter() - began
    found["host_death"] = _host_death_s(stage, client)
    return found


def _host_death_s(stage: Stage, client: Client) -> float:
    """From the moment a machine stands still until its run executes again, on another that waits for it."""
    add_worker(stage, client, "still")
    with Caller(stage.url, stage.token) as caller:
        run = _start(caller, "rest_still")
        _until(caller, run, "running")
    agent = psutil.Process(agent_of(stage.directory / "still" / "state"))
    machine = [agent, *agent.children(recursive=True)]
    began_at = time.time()
    for process in machine:
        process.suspend()  # no socket is closed, as when a machine loses its power
    spare = {"name": "spare", "role": "worker", "labels": ["still"], "expires_s": 86400}
    stage.start_worker("spare", client.post("/workers/tokens", spare)["token"])
    try:
        stage.wait("the run executes again", lambda: len(_begun(client, run)) == 2)
        return _begun(client, run)[-1] - began_at
    finally:
        for process in machine:
            process.kill()


def _begun(client: Client, run: str) -> list[float]:
    attempts = client.get(f"/runs/{run}")["attempts"]
    return [attempt["started_at"] for attempt in attempts if attempt["started_at"]]
