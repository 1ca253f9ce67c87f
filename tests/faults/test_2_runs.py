"""2.5 to 2.7, 2.10, 2.11, 2.18, 2.20, 2.21 and 2.27: runs at the limits of size, memory and manners."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.harness.deployment import FAST, PROJECT, Deployment, deployed
from tests.harness.memory import small_group
from tests.harness.processes import alive
from tests.harness.waiting import eventually
from tests.harness.witnesses import words

CUT = "(line cut)"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One server for all that leave it as they found it."""
    with deployed(tmp_path_factory.mktemp("runs")) as running:
        yield running


@contextmanager
def prompt(within_s: float) -> Iterator[None]:
    """Fail when what is inside takes longer."""
    began = time.monotonic()
    yield
    took_s = time.monotonic() - began
    assert took_s < within_s, f"it took {took_s:.1f} s"


@pytest.mark.fault("2.5")
def test_a_result_of_50_mb_is_kept_and_slows_nobody_down(deployment: Deployment) -> None:
    large = deployment.start_run("large", size=50 * 1024 * 1024)
    with prompt(10):
        deployment.wait_for_run(deployment.start_run("large", size=10), "completed")
    run = deployment.wait_for_run(large, "completed")
    assert run["result_form"] == "reference"
    assert run["result"]["size"] > 50 * 1024 * 1024
    with prompt(1):
        assert len(deployment.client.get(f"/runs/{large}").content) < 10_000


@pytest.mark.fault("2.6")
def test_a_million_lines_are_stored_in_seconds_and_hold_up_nobody(deployment: Deployment) -> None:
    deployment.wait_for_run(deployment.start_run("flood", lines=10), "completed")
    began = time.monotonic()
    flood = deployment.start_run("flood", lines=1_000_000)
    while deployment.run(flood)["state"] in ("queued", "starting"):
        time.sleep(0.01)
    with prompt(3):
        deployment.wait_for_run(deployment.start_run("large", size=10), "completed")
    deployment.wait_for_run(flood, "completed", within_s=60)
    took_s = time.monotonic() - began
    last = deployment.items(f"/runs/{flood}/logs", after=999_990, limit=100)
    assert [line["text"] for line in last] == [f"line {number}" for number in range(999_990, 1_000_000)]
    assert took_s < 60, f"it took {took_s:.1f} s"


@pytest.mark.fault("2.7")
def test_a_line_of_10_mb_is_cut_however_it_is_written(deployment: Deployment) -> None:
    run_id = deployment.start_run("long_lines", size=10 * 1024 * 1024)
    deployment.wait_for_run(run_id, "completed")
    lines = deployment.log_lines(run_id)
    assert sorted(line[0] for line in lines if CUT in line) == ["a", "b", "c", "d", "e"]
    assert all(len(line) < 40_000 for line in lines)
    assert "after" in lines


@pytest.mark.fault("2.10")
def test_an_engine_killed_20_times_in_a_row_costs_a_slot_never(
    deployment: Deployment, tmp_path: Path
) -> None:
    """FAULTS B011."""
    witness = tmp_path / "witness"
    for _ in range(20):
        with prompt(5):
            run = deployment.wait_for_run(deployment.start_run("killed", path=str(witness)), "crashed")
        assert "signal 9, possibly out of memory" in run["message"]
    assert words(witness)["begin"] == 20
    deployment.wait_for_run(deployment.start_run("large", size=10), "completed")


@pytest.mark.fault("2.11")
def test_a_flow_that_runs_out_of_memory_fails_as_python_says(deployment: Deployment) -> None:
    run = deployment.wait_for_run(deployment.start_run("greedy"), "failed")
    assert "MemoryError" in run["message"]
    deployment.wait_for_run(deployment.start_run("large", size=10), "completed")


@pytest.mark.fault("2.11")
def test_an_engine_that_the_kernel_kills_for_its_memory_says_so_in_its_last_line(
    deployment: Deployment,
) -> None:
    with small_group(128 * 1024 * 1024) as group:
        run_id = deployment.start_run("overcome", group=str(group.entrance))
        run = deployment.wait_for_run(run_id, "crashed")
        assert group.killed() == 1
    assert "signal 9, possibly out of memory" in run["message"]
    assert deployment.log_lines(run_id)[-1].endswith("signal 9, possibly out of memory")
    deployment.wait_for_run(deployment.start_run("large", size=10), "completed")


@pytest.mark.fault("2.11")
def test_an_engine_that_keeps_too_much_memory_is_not_kept(tmp_path: Path) -> None:
    with deployed(tmp_path, parallel=1) as deployment:
        deployment.server.kill()
        deployment.server.environment["FARHAND_ENGINE_MEMORY"] = "150M"
        deployment.restart()
        pids = [
            deployment.wait_for_run(deployment.start_run("keeping", megabytes=size), "completed")["result"]
            for size in (1, 1, 200, 1)
        ]
    assert pids[0] == pids[1] == pids[2]
    assert pids[3] != pids[2]


@pytest.mark.fault("2.18")
def test_two_bundles_with_the_same_module_name_never_mix(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    source = "import part\nfrom farhand import flow\n\n\n@flow\ndef same() -> str:\n    return part.NAME\n"
    (project / "same.py").write_text(source)
    (project / "part.py").write_text("NAME = 'first'\n")
    with deployed(tmp_path, project=project, parallel=1) as deployment:
        gate = tmp_path / "gate"
        assert deployment.wait_for_run(deployment.start_run("same"), "completed")["result"] == "first"
        blocker = deployment.start_run("stepwise", path=str(tmp_path / "w"), gate=str(gate))
        deployment.wait_for_run(blocker, "running")
        old = deployment.start_run("same")
        deployment.server.kill()
        (project / "part.py").write_text("NAME = 'second'\n")
        deployment.restart()
        new = deployment.start_run("same")
        gate.touch()
        assert deployment.wait_for_run(old, "completed")["result"] == "first"
        assert deployment.wait_for_run(new, "completed")["result"] == "second"
        assert deployment.wait_for_run(blocker, "completed")["result"] == [1, 2, 3]


@pytest.mark.fault("2.20")
def test_a_child_that_holds_a_port_ends_with_its_run(deployment: Deployment, tmp_path: Path) -> None:
    """FAULTS B025."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = tmp_path / "path"
    run_id = deployment.start_run("holding_a_port", port=port, path=str(path), gate=str(tmp_path / "gate"))
    eventually(lambda: path.exists() and path.read_text(), what="the child listens")
    deployment.post(f"/runs/{run_id}/cancel")
    deployment.wait_for_run(run_id, "cancelled", within_s=FAST.grace_s + 5)
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.fault("2.21")
def test_200_children_that_nobody_waited_for_leave_no_zombie(deployment: Deployment) -> None:
    """FAULTS B035."""
    run = deployment.wait_for_run(deployment.start_run("childish", count=200), "completed")
    *children, engine = run["result"]
    assert len(children) == 200
    eventually(lambda: not [pid for pid in children if alive(pid)], 5, "every child is gone")
    assert psutil.pid_exists(engine), "the engine was not kept"
    assert psutil.Process(engine).children() == []


@pytest.mark.fault("2.27")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_ended_with_work_open_gives_it_back_and_goes_on_with_it(
    deployment: Deployment, tmp_path: Path, number: int
) -> None:
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    running = deployment.start_run("stepwise", path=str(witness), gate=str(gate))
    eventually(lambda: words(witness)["step2"], what="two tasks are done")
    local = deployment.local_pid
    queued = [deployment.start_run("stepwise", path=str(tmp_path / "q"), gate=str(gate)) for _ in range(3)]
    deployment.server.send(number)
    assert deployment.server.wait(FAST.grace_s + 10) == 0
    eventually(lambda: not alive(local), 5, "the local worker ended with its server")
    deployment.restart()
    gate.touch()
    for run_id in (running, *queued):
        assert deployment.wait_for_run(run_id, "completed")["result"] == [1, 2, 3]
    assert words(witness) == {"step1": 1, "step2": 1, "step3": 1}
    first, *rest = deployment.attempts(running)
    assert first["outcome"] == "stopped"
    assert rest[-1]["outcome"] == "completed"
