"""``farhand run``: a flow of a file, in a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FLOWS = """
import sys
import time
from farhand import flow, task
from beside import ONE

@task
def double(x: int) -> int:
    print("doubling", x)
    return 2 * x

@flow
def add(a: int, b: int = ONE, name: str = "x"):
    if a < 0:
        raise ValueError("negative")
    return double(a) + b

@flow
def endless():
    print("began", flush=True)
    time.sleep(600)

@flow
def odd():
    return {1, 2}.__class__
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("ONE = 1\n")
    (tmp_path / "one.py").write_text("from farhand import flow\n@flow\ndef only(a: int = 1): return a\n")
    path = tmp_path / "flows.py"
    path.write_text(FLOWS)
    return path


def run(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "farhand", "run", *arguments, "--home", str(file.parent / "home")]
    return subprocess.run(call, capture_output=True, text=True, cwd=file.parent)


def test_a_flow_runs_and_its_result_is_printed(file: Path) -> None:
    done = run(file, "flows.py:add", "-p", "a=3", "-p", "name=7")
    assert (done.returncode, done.stdout) == (0, "doubling 3\n7\n")
    assert "add completed in" in done.stderr
    assert list((file.parent / "home" / "inbox").glob("*.jsonl"))


def test_a_file_with_one_flow_needs_no_name(file: Path) -> None:
    assert run(file, "one.py").stdout == "1\n"


def test_json_is_all_that_json_prints(file: Path) -> None:
    done = run(file, "flows.py:add", "-p", "a=3", "--json")
    assert json.loads(done.stdout) == {"state": "completed", "result": 7}
    assert "doubling 3" in done.stderr
    assert json.loads(run(file, "flows.py:odd", "--json").stdout)["result"] == "<class 'set'>"


def test_a_failure_is_1_with_the_users_traceback(file: Path) -> None:
    done = run(file, "flows.py:add", "-p", "a=-3")
    assert done.returncode == 1
    assert "ValueError: negative" in done.stderr
    assert "farhand/sdk" not in done.stderr
    assert json.loads(run(file, "flows.py:add", "-p", "a=-3", "--json").stdout)["state"] == "failed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.py"], "there is no file"),
        (["flows.py"], "name one"),
        (["flows.py:none"], "has no flow"),
        (["flows.py:double"], "double is a task; what runs is a flow"),
        (["beside.py"], "decorate a function"),
        (["flows.py:add"], "a: is missing"),
        (["flows.py:add", "-p", "a=x"], "a: must be a whole number"),
        (["flows.py:add", "-p", "c=1"], "c: "),
        (["broken.py"], "cannot be imported: ZeroDivisionError"),
        (["eager.py"], "eager.py calls only as it is imported; put the call under"),
    ],
)
def test_what_cannot_be_run_is_2_and_says_why(file: Path, arguments: list[str], said: str) -> None:
    (file.parent / "broken.py").write_text("1 / 0\n")
    (file.parent / "eager.py").write_text("from one import only\nonly()\n")
    done = run(file, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]


def test_an_interruption_is_130(file: Path) -> None:
    call = [sys.executable, "-m", "farhand", "run", "flows.py:endless", "--home", str(file.parent / "home")]
    process = subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=file.parent
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in errors


def test_a_flow_that_ends_the_process_has_failed(file: Path) -> None:
    (file.parent / "leaves.py").write_text(
        "import sys\nfrom farhand import flow\n@flow\ndef leave(): sys.exit(3)\n"
    )
    done = run(file, "leaves.py", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"state": "failed", "error": "SystemExit: 3"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys; sys.exit(0)", "cannot be imported: it ends the process"),
        ("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError"),
        ("def f(:", "cannot be imported: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_imported_is_2_and_shows_no_frame_of_ours(
    file: Path, text: str, words: str
) -> None:
    (file.parent / "broken.py").write_text(text)
    done = run(file, "broken.py")
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]
    assert "importlib" not in done.stderr
    assert "farhand/cli" not in done.stderr


def test_a_directory_is_told_from_a_file(file: Path) -> None:
    done = run(file, ".")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is a directory; name a Python file in it" in done.stderr


def test_a_home_that_cannot_be_written_costs_one_line(file: Path) -> None:
    (file.parent / "home").mkdir()
    (file.parent / "home" / "inbox").write_text("")
    done = run(file, "one.py")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.count("this run is not recorded") == 1
    assert "set FARHAND_HOME" in done.stderr
    assert "Errno" not in done.stderr
