"""2.3, 2.4, 2.8, 2.9, 2.12 and 2.13: user code does its worst, and the record stays whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deployment import FAST, Deployment, environment
from tests.harness.processes import alive

FLOWS = """
import math, os, threading, time
from farhand import emit, flow, progress, task


class Grumpy(Exception):
    def __init__(self, lock):
        super().__init__("it holds a lock")
        self.lock = lock


@task
def grumpy():
    raise Grumpy(threading.Lock())


@flow
def unpicklable_exception(catch: bool):
    try:
        grumpy()
    except Grumpy as error:
        if not catch:
            raise
        return str(error)


@task
def numbers():
    emit(loss=float("nan"), gain=float("inf"))
    return [float("nan"), float("inf"), -float("inf"), -0.0]


@flow
def not_numbers():
    found = numbers()
    assert math.isnan(found[0]) and math.copysign(1, found[3]) == -1
    return {"found": found}


@flow
def weigh(text: str, table: dict):
    return [len(text), len(table)]


@task
def piece(size):
    return os.urandom(1) * size


@flow
def one_by_one(count: int, size: int):
    def held():
        lines = open("/proc/self/status").read().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024
    before = held()
    for _ in range(count):
        last = piece(size)
    return [len(last), held() - before]


@flow(retries=3, retry_delay=0.01)
def leaving_children(path: str):
    import subprocess
    from pathlib import Path
    seen = Path(path)
    earlier = seen.read_text().split() if seen.exists() else []
    alive = [pid for pid in earlier if os.path.exists("/proc/" + pid)]
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with seen.open("a") as file:
        file.write(f"{child.pid} ")
    raise ValueError(f"try {len(earlier) + 1}, {len(alive)} of those before are alive")


@flow
def broken_bytes():
    os.write(1, b"bad \\xb2\\xff end\\n")
    os.write(1, "half an \\u00e4".encode()[:-1])
    time.sleep(0.2)
    os.write(1, "\\u00e4\\n".encode()[1:])
    os.write(1, b"nul \\x00 here\\n")
    print("lone \\ud800 surrogate")
    print("last")


@flow
def broken_and_much():
    os.write(1, b"bad \\xff end\\n")
    os.write(1, (b"x" * 999 + b"\\n") * 10_000)
    return "got through"


@task
def leave():
    os._exit(0)


@task
def before():
    return 1


@flow(crash_retries=1)
def leaves_for_good():
    before()
    leave()


@task(process=True)
def fragile(number):
    print("part", number)
    if number == 1:
        os.kill(os.getpid(), 9)
    return number


@task(durable=True)
def paid(numbers):
    progress(1, 2, "paid")
    return sum(numbers)


@flow(run_name="fragile {count}")
def survives(count: int = 3):
    parts = fragile.map(range(count))
    lost = [str(part.exception()) for part in parts if part.exception() is not None]
    return [lost, paid([part.result() for part in parts if not part.failed])]


@task
def deeper(depth):
    return deeper.function(depth + 1)


@flow
def too_deep():
    deeper(0)


@task
def nest():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@flow
def deep_value():
    return len(nest())


@task
def part(number):
    if number == 5000:
        raise ValueError(f"part {number} is missing")
    return number


@flow
def many():
    began = time.perf_counter()
    parts = part.map(range(10_000))
    failed = [future.index for future in parts if future.exception() is not None]
    good = [future.result() for future in parts if not future.failed]
    assert good == [number for number in range(10_000) if number != 5000]
    return {"failed": failed, "error": str(parts[5000].exception()), "took_s": time.perf_counter() - began}


@flow
def many_unasked():
    part.map(range(4990, 5010))
    return "went on"
"""

SLOW = """
import time
time.sleep(2)

from farhand import flow


@flow(isolated=True, timeout=0.5)
def slow_to_import():
    return "done"
"""

DEFAULTS = """
import json
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from pathlib import Path

from farhand import flow


@dataclass
class Model:
    depth: int


class Unit(Enum):
    METRE = "m"


@flow
def typed(
    model: Model = {"depth": "2"}, day: date = "2024-01-01", where: Path = "/tmp", unit: Unit = "m",
    wait: timedelta = "2h",
):
    return [type(value).__name__ for value in (model, day, where, unit, wait)]


if __name__ == "__main__":
    print(json.dumps(typed()))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One server for the tests of this module: what one flow does must not reach the next."""
    directory = tmp_path_factory.mktemp("user-code")
    project = directory / "project"
    project.mkdir()
    (project / "worst.py").write_text(FLOWS)
    (project / "defaults.py").write_text(DEFAULTS)
    (project / "slow.py").write_text(SLOW)
    deployment = Deployment(directory, project, FAST)
    try:
        yield deployment.start()
    finally:
        deployment.clear()


def ended(served: Deployment, flow: str, *states: str, **params: Any) -> dict[str, Any]:
    return served.wait_for_run(served.start_run(flow, **params), *states)


@pytest.mark.fault("2.3")
def test_an_exception_that_cannot_be_pickled_is_told_by_its_text(served: Deployment) -> None:
    assert ended(served, "unpicklable_exception", "completed", catch=True)["result"] == "it holds a lock"
    run = ended(served, "unpicklable_exception", "failed", catch=False)
    assert "Grumpy: it holds a lock" in json.dumps(run)


@pytest.mark.fault("2.4")
def test_what_is_no_number_comes_through_as_json(served: Deployment) -> None:
    run = ended(served, "not_numbers", "completed")
    text = json.dumps(run, allow_nan=False)
    assert '"nan"' in text.lower()
    points = served.items(f"/runs/{run['id']}/metrics")
    assert set(points[0]["values"]) == {"loss", "gain"}
    json.dumps(points, allow_nan=False)


@pytest.mark.fault("2.8")
def test_bytes_that_are_no_text_become_marks_and_later_lines_are_there(served: Deployment) -> None:
    """FAULTS B092."""
    run = ended(served, "broken_bytes", "completed")
    lines = served.log_lines(run["id"])
    assert "bad \ufffd\ufffd end" in lines
    assert any(line.startswith("half an \u00e4") for line in lines), lines
    assert any(line.startswith("nul ") for line in lines)
    assert any(line.startswith("lone ") and line.endswith("surrogate") for line in lines)
    assert "last" in lines


@pytest.mark.fault("2.9")
def test_an_engine_that_user_code_ends_is_a_crash_and_not_a_success(served: Deployment) -> None:
    run = ended(served, "leaves_for_good", "crashed")
    assert len(served.attempts(run["id"])) == 2, "crash_retries pays for one more attempt"
    assert "exit 0" in json.dumps([run, served.attempts(run["id"])])
    tasks = {task["name"]: task for task in served.items(f"/runs/{run['id']}/tasks")}
    assert tasks["before"]["state"] == "completed"


@pytest.mark.fault("2.9")
def test_a_process_task_that_is_killed_is_reported_and_its_flow_goes_on(served: Deployment) -> None:
    """FAULTS B154."""
    run = ended(served, "survives", "completed")
    lost = "the process of fragile ended: signal 9, possibly out of memory"
    assert run["result"] == [[lost], 2]
    assert len(served.attempts(run["id"])) == 1
    lines = served.log_lines(run["id"])
    assert {"part 0", "part 1", "part 2", "paid"} <= set(lines)
    points = served.items(f"/runs/{run['id']}/metrics")
    assert {"progress": 0.5} in [point["values"] for point in points]


@pytest.mark.fault("2.12")
def test_deep_recursion_fails_its_run_and_nothing_else(served: Deployment) -> None:
    run = ended(served, "too_deep", "failed")
    assert "RecursionError" in run["message"]
    assert ended(served, "deep_value", "completed")["result"] == 1
    assert ended(served, "not_numbers", "completed")["state"] == "completed"


@pytest.mark.fault("2.13")
def test_ten_thousand_mapped_calls_with_a_failure_among_them(served: Deployment) -> None:
    """FAULTS B141, B143."""
    run = ended(served, "many", "completed")
    result = run["result"]
    assert result["failed"] == [5000]
    assert result["error"] == "part 5000 is missing"
    assert result["took_s"] < 8
    run = ended(served, "many_unasked", "completed")
    assert any("part" in line and "part 5000 is missing" in line for line in served.log_lines(run["id"]))


def test_ten_megabytes_after_bytes_that_are_no_text_hold_nothing_up(served: Deployment) -> None:
    """B093: whoever reads an engine's output goes on, whatever it reads."""
    assert ended(served, "broken_and_much", "completed")["result"] == "got through"


def test_an_import_that_takes_longer_than_timeout_lease_and_grace_fails_nothing(served: Deployment) -> None:
    """B009: nobody is lost by it, and what it takes is not a part of the timeout."""
    run = ended(served, "slow_to_import", "completed")
    assert len(served.attempts(run["id"])) == 1


def test_defaults_are_of_the_same_types_in_a_script_and_on_a_server(
    served: Deployment, tmp_path: Path
) -> None:
    """B089: a schedule prepares its runs as the API does."""
    script = subprocess.run(
        [sys.executable, str(served.directory / "project" / "defaults.py")],
        env=environment(tmp_path, FAST),
        capture_output=True,
        text=True,
        check=True,
    )
    types = ["Model", "date", "PosixPath", "Unit", "timedelta"]
    assert json.loads(script.stdout) == types
    assert ended(served, "typed", "completed")["result"] == types


def test_a_parameter_of_a_megabyte_and_one_of_5000_keys_arrive_whole(served: Deployment) -> None:
    """B096: they are in no argument list and no environment."""
    table = {f"key{number}": number for number in range(5000)}
    run = ended(served, "weigh", "completed", text="x" * 1_000_000, table=table)
    assert run["result"] == [1_000_000, 5000]


def test_results_that_are_kept_are_not_kept_in_memory(served: Deployment) -> None:
    """B098: of 40 results of 10 MB the engine holds those that code still has, and what it packs."""
    size, grown = ended(served, "one_by_one", "completed", count=40, size=10_000_000)["result"]
    assert size == 10_000_000
    assert grown < 200_000_000


def test_nothing_of_an_attempt_is_alive_when_the_next_begins(served: Deployment, tmp_path: Path) -> None:
    """B023."""
    run = ended(served, "leaving_children", "failed", path=str(tmp_path / "children"))
    assert run["message"] == "ValueError: try 4, 0 of those before are alive"
    assert not [pid for pid in (tmp_path / "children").read_text().split() if alive(int(pid))]
