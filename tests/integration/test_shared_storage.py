"""A worker that shares storage with the server: files come straight from there, and its paths are good."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, deployed
from tests.harness.proxy import TO_WORKER, Proxy

SIZE = 3_000_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Proxy]]:
    """A worker that is told of the directory with the server's home in it."""
    directory = tmp_path_factory.mktemp("shared")
    with deployed(directory) as deployment, contextlib.closing(Proxy(deployment.port)) as proxy:
        deployment.worker("box", "demo", url=proxy.url, options=["--shared-path", str(directory)])
        yield deployment, proxy


def test_a_large_value_goes_to_such_a_worker_by_the_directory(shared: tuple[Deployment, Proxy]) -> None:
    deployment, proxy = shared
    before = proxy.forwarded[TO_WORKER]
    run = deployment.wait_for_run(deployment.start_run("bulky", size=SIZE), "completed")
    assert run["result"] == SIZE
    assert proxy.forwarded[TO_WORKER] - before < SIZE / 2
    assert "files come straight from the server's directory" in deployment.workers["box"].text()


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
