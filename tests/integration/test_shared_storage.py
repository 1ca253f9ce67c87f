"""A worker that shares storage with the server: files come straight from there, and its paths are good."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farhand.blobs import Blobs
from tests.harness.deployment import FAST, Deployment, deployed
from tests.harness.proxy import TO_SERVER, TO_WORKER, Proxy
from tests.harness.waiting import eventually
from tests.harness.witnesses import words

SIZE = 3_000_000
UNHURRIED = replace(FAST, lease_s=6.0)
"""An agent that is started again on a loaded machine still finds its job's lease, and with it its result."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Proxy]]:
    """A worker that is told of the directory with the server's home in it."""
    directory = tmp_path_factory.mktemp("shared")
    with (
        deployed(directory, times=UNHURRIED) as deployment,
        contextlib.closing(Proxy(deployment.port)) as proxy,
    ):
        deployment.worker("box", "demo", url=proxy.url, options=["--shared-path", str(directory)])
        yield deployment, proxy


def test_a_large_value_goes_to_and_from_such_a_worker_by_the_directory(
    shared: tuple[Deployment, Proxy],
) -> None:
    deployment, proxy = shared
    before = dict(proxy.forwarded)
    run = deployment.wait_for_run(deployment.start_run("bulky", size=SIZE), "completed")
    assert run["result"] == SIZE
    for direction in (TO_WORKER, TO_SERVER):
        assert proxy.forwarded[direction] - before[direction] < SIZE / 2
    assert "files come straight from the server's directory" in deployment.workers["box"].text()
    kept = [path.stat().st_size for path in (deployment.home / "local" / "blobs").iterdir()]
    assert all(size < SIZE for size in kept), "beside the server it is read where it lies"


@pytest.mark.fault("3.47")
def test_what_a_killed_agent_had_laid_is_laid_again_and_swept(
    shared: tuple[Deployment, Proxy], tmp_path: Path
) -> None:
    deployment, proxy = shared
    blobs = deployment.home / "blobs"
    box = deployment.workers["box"]
    path, gate = tmp_path / "witness", tmp_path / "gate"
    run = deployment.start_run("heavy_there", path=str(path), gate=str(gate), size=SIZE)
    eventually(lambda: words(path)["began"], 20, "it has begun")
    proxy.cut(TO_SERVER)
    gate.touch()
    laid = eventually(lambda: list(blobs.glob("*/.*.laid")), 20, "its result is laid, and cannot be told of")
    box.kill()
    proxy.heal()
    box.start()
    deployment.wait_for_run(run, "completed")
    left = list(blobs.glob("*/.*.laid"))
    assert left in (laid, []), (
        "unless it was taken: what the killed agent had asked may still have been on its way"
    )
    assert list(laid[0].parent.glob(laid[0].name[1:65])), "what was laid again has its name"
    Blobs(blobs).sweep_partial(time.time() + 60)
    assert list(blobs.glob("*/.*")) == []


@pytest.mark.parametrize(("flow", "result"), [("reading", 4), ("writing", True)])
def test_a_path_outside_of_what_is_shared_is_told(
    shared: tuple[Deployment, Proxy], tmp_path: Path, flow: str, result: object
) -> None:
    deployment, _ = shared
    for place, told in ((deployment.directory, []), (tmp_path, [str(tmp_path / "file")])):
        (place / "file").write_text("text")
        run = deployment.wait_for_run(deployment.start_run(flow, at=str(place / "file")), "completed")
        assert run["result"] == result
        events = deployment.items("/events", run=run["id"], kind="run.local_path_on_worker")
        assert [event["details"]["path"] for event in events] == told
        lines = [
            line for line in deployment.log_lines(run["id"]) if "is a path of this machine alone" in line
        ]
        assert len(lines) == len(told)


def test_a_worker_that_may_only_read_the_directory_sends_what_it_has(
    shared: tuple[Deployment, Proxy],
) -> None:
    """It has the directory mounted so, in a namespace of its own."""
    deployment, _ = shared
    blobs = deployment.home / "blobs"
    reader = deployment.directory / "python"
    reader.write_text(
        '#!/bin/sh\nexec unshare -m sh -c \'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && '
        f'shift && exec "$@"\' sh {blobs} {sys.executable} "$@"\n'
    )
    reader.chmod(0o700)
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mounts of its own can be given to a worker here")
    deployment.workers["box"].clear()
    options = ["--shared-path", str(deployment.directory)]
    worker = deployment.worker("reader", "demo", python=str(reader), options=options)
    for _ in range(2):
        run = deployment.wait_for_run(deployment.start_run("bulky", size=SIZE), "completed")
        assert run["result"] == SIZE
    assert worker.text().count("files are sent, not laid in") == 1
    assert "files come straight from the server's directory" in worker.text()
