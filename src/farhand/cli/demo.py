"""``farhand demo``: a pipeline over real data, on a server and a worker of its own."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..errors import FarhandError
from ..lifecycle import RUN, is_terminal
from . import demo_view
from .client import Client
from .following import read_lines
from .stage import Stage

FLOW = "weather"
WORKER = "demo"


@click.command()
@click.option("--keep", is_flag=True, help="Leave the server and the worker running.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="The server's port; a free one by default.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where to put the files that the run saves; a new temporary directory by default.",
)
def demo(keep: bool, port: int, out: Path | None) -> None:
    """Run a pipeline over real weather data on a server and a worker.

    Both are started for it in temporary directories and ended after it. Nothing of yours is touched.
    """
    began = time.monotonic()
    with _stage(port, keep) as stage:
        client = _set_up(stage)
        click.echo(f"  ready after {time.monotonic() - began:.1f} s\n")
        run = client.post(f"/flows/{FLOW}/runs", {})
        click.echo(f"Run {run['id']} of {FLOW}")
        run = _follow(client, run["id"])
        _report(client, run, out)
        _where(stage, client, keep)
    if run["state"] != "completed":
        raise FarhandError(f"the run ended {run['state']}: {run['message']}")


@contextmanager
def _stage(port: int, keep: bool) -> Generator[Stage, None, None]:
    """The processes and their directory; both are gone afterwards, unless they are to be kept."""
    directory = Path(tempfile.mkdtemp(prefix="farhand-demo-"))
    stage = Stage(directory, example(), port)
    left = False
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: in order
    try:
        yield stage
        left = keep
    finally:
        if not left:
            stage.close()
            shutil.rmtree(directory, ignore_errors=True)


def example() -> Path:
    """The weather project: inside the package where it is installed, else in the source tree."""
    package = Path(__file__).resolve().parent.parent
    places = (package / "examples" / FLOW, package.parent.parent / "examples" / FLOW)
    for place in places:
        if (place / "weather.py").exists():
            return place
    raise FarhandError(f"the weather example is missing; it should be at {places[0]}")


def _set_up(stage: Stage) -> Client:
    """Start the server, then a worker that may run what asks for the label."""
    click.echo("Starting a server")
    stage.start_server("--parallel", "2")
    client = Client(stage.url, lambda: stage.token)
    stage.wait("the server answers", client.answers)
    stage.wait("the flow is known", lambda: _is_known(client))
    click.echo(f"Starting a worker with the label {WORKER}")
    wanted = {"name": WORKER, "role": "worker", "labels": [WORKER], "expires_s": 86400}
    token = client.post("/workers/tokens", wanted)["token"]
    stage.start_worker(WORKER, token, "--parallel", "2")
    stage.wait("both workers are online", lambda: len(_online(client)) == 2)
    for worker in _online(client):
        click.echo(
            f"  {worker['name']:8} {worker['host']}, Python {worker['python']}, {worker['parallel']} slots"
        )
    return client


def _is_known(client: Client) -> bool:
    return any(flow["name"] == FLOW for flow in client.get("/flows")["items"])


def _online(client: Client) -> list[Mapping[str, Any]]:
    return [worker for worker in client.get("/workers")["items"] if worker["state"] == "online"]


def _follow(client: Client, run_id: str) -> Mapping[str, Any]:
    """Print states, task calls and log lines as they come, until the run has ended."""
    seen: dict[str, str] = {}
    line, state = 0, ""
    for _ in client.follow(run_id):
        # Asked for first and told last: what comes before the end of a run is recorded before it.
        run: Mapping[str, Any] = client.get(f"/runs/{run_id}")
        _tell_tasks(client, run_id, seen)
        line = read_lines(client, run_id, line, lambda told: click.echo(f"    │ {told['text']}"))
        if run["state"] != state:
            state = run["state"]
            click.echo(f"  {state}" + (f": {run['message']}" if run["message"] else ""))
        if is_terminal(RUN, state):
            return run
    raise AssertionError("following has no end of its own")


def _tell_tasks(client: Client, run_id: str, seen: dict[str, str]) -> None:
    for task in client.get(f"/runs/{run_id}/tasks")["items"]:
        told = demo_view.state_of(task)
        if seen.get(task["key"]) != told:
            seen[task["key"]] = told
            click.echo(f"  {demo_view.name_of(task):20} {told}")


def _report(client: Client, run: Mapping[str, Any], out: Path | None) -> None:
    tasks = client.get(f"/runs/{run['id']}/tasks")["items"]
    click.echo("")
    for line in demo_view.table(demo_view.HEADER, demo_view.parts(run, tasks)):
        click.echo(line)
    artifacts = client.get(f"/runs/{run['id']}/artifacts")["items"]
    if not artifacts:
        return
    out = out or Path(tempfile.mkdtemp(prefix="farhand-demo-files-"))
    out.mkdir(parents=True, exist_ok=True)
    click.echo("\nFiles that the run saved")
    for artifact in artifacts:
        path = out / Path(artifact["name"]).name
        path.write_bytes(client.read(f"/artifacts/{artifact['digest']}"))
        click.echo(f"  {path} ({artifact['size']:,} bytes)")


def _where(stage: Stage, client: Client, keep: bool) -> None:
    """The console's address; a link that works only while the server does."""
    if not keep:
        click.echo(f"\nThe console was at {stage.url}; --keep leaves it up.")
        return
    link = client.post("/signin-links", {})["path"]
    pids = " ".join(str(program.process.pid) for program in reversed(stage.programs))
    click.echo(f"\nThe console is at {stage.url}/{link}")
    click.echo(f"Everything lies in {stage.directory}. To stop it:\n  kill {pids}; rm -r {stage.directory}")
