"""A cluster whose nodes reach nothing but their login node."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.harness.waiting import eventually
from tests.lab.machines import Lab, begun, steps
from tests.lab.netns import SERVER, WORKER, Network, network
from tests.lab.slurm import cluster
from tests.lab.sshd import login_node

LOGIN_OUTSIDE, LOGIN_INSIDE = "10.213.1.1", "10.213.2.1"


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lab, Network]]:
    """A server on one host, a cluster behind its login node on another: no packet passes from there to it."""
    monkeypatch.setenv("WITNESS_MARK", str(tmp_path))
    with ExitStack() as stack:
        net = stack.enter_context(network())
        net.cut()
        places = {"controller": "router", "node": "worker"}
        far = {"controller": LOGIN_INSIDE, "node": WORKER, "place": lambda what: net.inside(places[what])}
        slurm = stack.enter_context(cluster(tmp_path / "slurm", **far))
        with net.inside("router"):
            sshd = stack.enter_context(login_node(tmp_path / "sshd", slurm.environment, LOGIN_OUTSIDE))
        stack.enter_context(net.inside("server"))
        made = Lab(tmp_path, slurm, sshd)
        stack.callback(lambda: eventually(lambda: not slurm.ask("squeue", "-h"), 20, "no job is left"))
        stack.callback(lambda: [slurm.ask("scancel", id) for id, _, _ in slurm.jobs()])
        stack.callback(made.close)
        yield made, net


def test_a_cluster_without_a_route_to_the_server_works_through_its_login_node(
    hidden: tuple[Lab, Network], tmp_path: Path
) -> None:
    """Runs, files, and a relay that is killed in mid-run: the same attempt goes on by the next one.

    The nodes do not see the home of the login node: the relay is found by its address alone.
    """
    lab, net = hidden
    (tmp_path / "home").mkdir()
    python = [sys.executable, "-m", "farhand_worker"]
    elsewhere = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none "$0" && exec "$@"',
        f"{tmp_path}/home",
    ]
    relay = {"relay": ["env", f"HOME={tmp_path}/home", *python], "relay_host": LOGIN_INSIDE}
    profile = {"worker": [*elsewhere, *python]}
    lab.configure(route="ssh", engine_url=None, max_idle_s=30, profile=profile, **relay)
    deployment = lab.deployment.start()
    with net.inside("worker"), pytest.raises(OSError, match=r"unreachable|timed out"):
        socket.create_connection((SERVER, deployment.port), 1)
    run_id = deployment.start_run("fetch", size=3_000_000)
    assert deployment.wait_for_run(run_id, "completed", within_s=90)["result"] == 3_000_000
    assert lab.trouble() == ""
    run_id, job = begun(lab, tmp_path)
    for process in psutil.Process(deployment.server.pid).children(recursive=True):
        if process.name() == "ssh" and "relay" in process.cmdline()[-1]:
            process.kill()
    eventually(lambda: "the relay" in lab.trouble(), what="it is shown")
    eventually(lambda: lab.trouble() == "", 30, "another has taken its place")
    (tmp_path / "gate").write_text("")
    deployment.wait_for_run(run_id, "completed", within_s=60)
    assert [where for _, where in steps(tmp_path)] == [job, job]
    assert len(deployment.attempts(run_id)) == 1
