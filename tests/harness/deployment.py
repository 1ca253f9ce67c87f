"""A server and its workers as real processes in temporary homes, on a tenth of the default clockwork."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import httpx2

from farhand.gateway.local import holder
from farhand_worker.protocol import Times
from tests.harness.processes import is_stem
from tests.lab import postgresql
from tests.optional import need

from .processes import carrying, kill_tree, process_of, signal_all
from .waiting import eventually

PROJECT = Path(__file__).parent / "project"
FAST = Times().scaled(0.1)
PLAIN: Any = {"verify": False, "trust_env": False}
"""For calls without TLS: to load what TLS trusts takes longer than most servers take to answer."""

TERMINAL = {"completed", "failed", "cancelled", "crashed", "skipped"}


_FIRST_PORT, _PORTS = 20_000, 12_000
"""Below those that a system gives to whoever connects, or asks for any: a server that is to listen on one of
them in a moment, or again, would find it taken now and then."""

_ports = itertools.count(os.getpid() * 1511)
"""Test processes that run side by side begin far from one another."""


def free_port() -> int:
    """A port that nothing listens on, another one each time."""
    while True:
        port = _FIRST_PORT + next(_ports) % _PORTS
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def environment(home: Path, times: Times, **more: str) -> dict[str, str]:
    """This process's environment without farhand's own settings, with a home and a clockwork."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FARHAND_")}
    clock = {f"FARHAND_{f.name.upper()}": str(getattr(times, f.name)) for f in fields(times)}
    return {**kept, **clock, "FARHAND_HOME": str(home), **more}


def _database(dialect: str | None) -> dict[str, str]:
    """A PostgreSQL database of its own, where the test or FARHAND_TEST_DATABASE=postgresql asks for one."""
    if (dialect or os.environ.get("FARHAND_TEST_DATABASE", "sqlite")) == "sqlite":
        return {}
    need("PostgreSQL")
    return {"FARHAND_DATABASE": postgresql.shared().database()}


@dataclass
class Program:
    """A process of the product, its output in a file."""

    name: str
    arguments: list[str]
    environment: dict[str, str]
    output: Path
    cwd: Path
    process: subprocess.Popen[bytes] | None = None
    python: str = sys.executable

    def start(self) -> None:
        """Start it (again)."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [self.python, *self.arguments],
                env=self.environment,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None, f"{self.name} was not started"
        return self.process.pid

    def send(self, number: int) -> None:
        """Send a signal to this process alone."""
        assert self.process is not None, f"{self.name} was not started"
        self.process.send_signal(number)  # not to a later process of its id

    def kill(self) -> None:
        """SIGKILL this process alone, and wait for its end."""
        self.send(signal.SIGKILL)
        self.wait()

    def wait(self, within_s: float = 30.0) -> int:
        """Wait for its end; returns the exit code."""
        assert self.process is not None
        return self.process.wait(within_s)

    def text(self) -> str:
        """All it has written so far."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def clear(self) -> None:
        """End it and all below it, whatever state it is in."""
        if self.process is not None and self.process.poll() is None:  # its id may be another's after that
            kill_tree(self.process.pid)
            self.process.wait(10)


@dataclass
class WorkerProgram(Program):
    """A worker; ``state_dir`` is its state directory."""

    state_dir: Path = field(default_factory=Path)

    @property
    def warden(self) -> int:
        """The process id of its warden, its only child."""
        children = eventually(lambda: _children(self.pid), what=f"the warden of {self.name}")
        return children[0]

    @property
    def stem(self) -> int:
        """The process id of the stem that its engines are forked from, or 0 when there is none."""
        return next((pid for pid in _children(self.warden) if is_stem(pid)), 0)

    def engines(self) -> list[int]:
        """The process ids of its engines, the children of the warden but for the stem."""
        return [pid for child in _children(self.pid) for pid in _children(child) if not is_stem(pid)]


def _children(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.NoSuchProcess:
        return []


class Deployment:
    """One server, its workers, and what a test wants to know of them."""

    def __init__(
        self,
        directory: Path,
        project: Path = PROJECT,
        times: Times = FAST,
        parallel: int = 2,
        dialect: str | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.times = times
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        arguments = ["-m", "farhand", "serve", str(project), "--port", str(self.port), "--no-open"]
        arguments += ["--home", str(self.home), "--parallel", str(parallel)]
        self.server = Program(
            "server",
            arguments,
            environment(self.home, times, **_database(dialect), **(settings or {})),
            directory / "server.log",
            directory,
        )
        self.workers: dict[str, WorkerProgram] = {}
        self._client: httpx2.Client | None = None

    # ------------------------------------------------------------ processes

    def start(self) -> Deployment:
        """Start the server and wait until it answers and has its flows and its local worker."""
        self.server.start()
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """The server answers and is ready for work."""
        eventually(self._is_ready, 30, f"the server answers; it said: {self.server.text()[-2000:]}")

    def _is_ready(self) -> bool:
        assert self.server.process is not None
        assert self.server.process.poll() is None, f"the server ended: {self.server.text()[-3000:]}"
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=2, **self._plain).status_code == 200
        except httpx2.HTTPError:
            return False

    @property
    def _plain(self) -> dict[str, Any]:
        return PLAIN if self.url.startswith("http:") else {}

    def restart(self) -> None:
        """Start a killed server again."""
        self.server.start()
        self.wait_until_ready()

    def token(self, name: str, labels: list[str], expires_s: float = 3600) -> str:
        """Mint a worker token over the API."""
        body = {"name": name, "labels": labels, "expires_s": expires_s}
        return self.post("/workers/tokens", body)["token"]

    def worker(
        self,
        name: str,
        *labels: str,
        parallel: int = 2,
        url: str | None = None,
        token: str | None = None,
        wait: bool = True,
        python: str = sys.executable,
        program: Path | None = None,
        packages: Path | None = None,
        checkout: Path | None = None,
        options: Iterable[str] = (),
    ) -> WorkerProgram:
        """Start a worker in a directory of its own, and wait until it is online.

        Code comes to it as a bundle, unless it has a ``checkout``.
        """
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        token_file = directory / "token"
        token_file.write_text(token if token is not None else self.token(name, list(labels)))
        arguments = ["-m", "farhand_worker"] if program is None else [str(program)]
        arguments += ["--url", url or self.url, "--token-file", str(token_file)]
        arguments += ["--state-dir", str(directory / "state"), "--parallel", str(parallel), "--name", name]
        arguments += [*options, *([] if checkout is None else [str(checkout)])]
        found = {} if packages is None else {"PYTHONPATH": str(packages)}
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FARHAND_")} | found
        worker = WorkerProgram(
            name,
            arguments,
            clean,
            directory / "log",
            directory,
            python=python,
            state_dir=directory / "state",
        )
        self.workers[name] = worker
        worker.start()
        if wait:
            self.wait_for_worker(name, "online")
        return worker

    def wait_for_worker(self, name: str, state: str, within_s: float = 20) -> None:
        """The server shows the worker in ``state``."""
        eventually(lambda: self.worker_state(name) == state, within_s, f"{name} is {state}")

    def worker_state(self, name: str) -> str:
        """The worker's state as the server shows it, empty when it has never attached."""
        return next((w["state"] for w in self.items("/workers") if w["name"] == name), "")

    def dismiss(self) -> None:
        """End the workers that were started, and all below them, whatever state they are in."""
        for worker in self.workers.values():
            worker.clear()
        self.workers.clear()

    def clear(self) -> None:
        """End everything this deployment started, engines included, by pid."""
        local = process_of(self._local_pid())
        for program in [*self.workers.values(), self.server]:
            program.clear()
        if local is not None and local.is_running():  # and still the same process under that id
            kill_tree(local.pid)
        if self._client is not None:
            self._client.close()
        eventually(lambda: not self.leftovers(), 10, "every process has ended")

    def leftovers(self) -> list[int]:
        """Processes that carry this deployment's mark; those found are killed."""
        pids = carrying("WITNESS_MARK", str(self.directory))
        signal_all(pids, signal.SIGKILL)
        return pids

    def _local_pid(self) -> int | None:
        return holder(self.home / "local")

    @property
    def local_pid(self) -> int:
        """The agent of the server's own processors."""
        pid = eventually(self._local_pid, what="the local worker runs")
        return pid

    # ------------------------------------------------------------ the API

    @property
    def client(self) -> httpx2.Client:
        """An HTTP client with the admin's token."""
        if self._client is None:
            token = (self.home / "admin-token").read_text().strip()
            headers = {"Authorization": f"Bearer {token}"}
            self._client = httpx2.Client(
                base_url=f"{self.url}/api/v1", headers=headers, timeout=10, **self._plain
            )
        return self._client

    def get(self, path: str, **query: Any) -> Any:
        """GET, decoded; tried again while the server is away."""
        return self._ask("GET", path, params=query)

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """The records of a list or of one page."""
        return self.get(path, **query)["items"]

    def post(self, path: str, body: Any = None) -> Any:
        """POST, decoded; tried again while the server is away."""
        return self._ask("POST", path, json=body if body is not None else {})

    def put(self, path: str, body: Any) -> Any:
        """PUT, decoded; tried again while the server is away."""
        return self._ask("PUT", path, json=body)

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        deadline = time.monotonic() + 20
        while True:
            try:
                response = self.client.request(method, path, **more)
            except httpx2.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
                continue
            assert response.status_code < 400, f"{method} {path}: {response.status_code} {response.text}"
            return response.json()

    def start_run(self, flow: str, key: str | None = None, **params: Any) -> str:
        """Queue a run; returns its id."""
        return self.post(f"/flows/{flow}/runs", {"params": params, "idempotency_key": key})["id"]

    def run(self, run_id: str) -> dict[str, Any]:
        """The run as the API shows it."""
        return self.get(f"/runs/{run_id}")

    def wait_for_run(self, run_id: str, *states: str, within_s: float = 40) -> dict[str, Any]:
        """The run in one of ``states`` (any terminal one when none is given)."""
        wanted = set(states) or TERMINAL

        def look() -> dict[str, Any] | None:
            run = self.run(run_id)
            assert run["state"] in wanted or run["state"] not in TERMINAL, f"the run ended: {run}"
            return run if run["state"] in wanted else None

        return eventually(look, within_s, f"run {run_id} is {' or '.join(sorted(wanted))}")

    def attempts(self, run_id: str) -> list[dict[str, Any]]:
        """The run's attempts."""
        return self.items(f"/runs/{run_id}/attempts")

    def log_lines(self, run_id: str) -> list[str]:
        """The texts of the run's whole log, in order."""
        texts: list[str] = []
        after = 0
        while True:
            page = self.get(f"/runs/{run_id}/logs", after=after, limit=1000)
            texts += [line["text"] for line in page["items"]]
            if not page["items"]:
                return texts
            after = page["items"][-1]["number"]


@contextlib.contextmanager
def deployed(directory: Path, **more: Any) -> Iterator[Deployment]:
    """A deployment that is cleared away at the end, whatever happened."""
    deployment = Deployment(directory, **more)
    around = os.environ.get("WITNESS_MARK")  # of a deployment that many tests share
    os.environ["WITNESS_MARK"] = str(directory)
    deployment.server.environment["WITNESS_MARK"] = str(directory)
    try:
        yield deployment.start()
    finally:
        deployment.clear()
        os.environ.pop("WITNESS_MARK", None)
        os.environ.update({} if around is None else {"WITNESS_MARK": around})
