"""Flows and tasks as a script calls them."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import farhand
from farhand import current_run, emit, flow, get_logger, load_artifact, save_artifact, task
from farhand.errors import InvalidParameters, NotInFlow, NotSupported, TimedOut, Usage


@task
def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


@task
def fail(x: int) -> int:
    raise ValueError(f"no {x}")


def states(lines: list[Any]) -> list[str]:
    return [body["state"] for kind, body, *_ in lines if kind == "checkpoint"]


def logs(lines: list[Any]) -> list[str]:
    return [body["text"] for kind, body, *_ in lines if kind == "log"]


# ------------------------------------------------------------ decorated functions


def test_decorated_functions_stay_plain(home: Path) -> None:
    assert double(2) == 4
    assert double.__name__ == "double"
    assert double.__doc__ == "Twice as much."
    assert functools.reduce(lambda a, b: a + double(b), [1, 2], 0) == 6
    emit(loss=1)
    assert load_artifact(save_artifact(b"x", name="x")).read_bytes() == b"x"
    assert not home.exists()


def test_submitting_outside_of_a_run_says_what_to_do_instead() -> None:
    with pytest.raises(NotInFlow, match="call double"):
        double.submit(1)
    with pytest.raises(NotInFlow):
        current_run()


def test_a_parameter_that_is_not_supported_is_refused_at_decoration() -> None:
    with pytest.raises(NotSupported, match="locks"):
        task(locks=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="colour"):
        flow(colour=1)  # type: ignore[call-overload]


def test_an_async_generator_is_refused_with_a_sentence() -> None:
    async def later() -> Any:
        yield 1

    with pytest.raises(NotSupported, match="async generator"):
        task(later)


def test_a_task_may_not_take_the_name_of_an_option_of_calls() -> None:
    with pytest.raises(Usage, match="wait_for"):
        task(lambda wait_for: None)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1},
        {"retries": True},
        {"timeout": 0},
        {"timeout": "soon"},
        {"retry_delay": -1},
        {"device": "NOT GOOD"},
        {"device_policy": "maybe"},
        {"runs_on": ""},
    ],
)
def test_settings_that_make_no_sense_are_refused_at_decoration(options: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        task(**options)


# ------------------------------------------------------------ runs


def test_a_run_is_recorded_in_a_journal(journal: Any) -> None:
    @flow(description="Adds up.")
    def add_up(n: int = 3) -> int:
        print("adding")
        emit(n=n)
        return sum(double.map(range(n)).result())

    assert add_up("4") == 12
    lines = journal()
    assert [line[0] for line in lines][:3] == ["script", "log", "metric"]
    first = lines[0][1]
    assert (first["flow"], first["params"], first["pid"]) == ("add_up", {"n": 4}, os.getpid())
    assert states(lines) == ["completed"] * 4
    assert lines[-1][0] == "result"
    assert json.loads(lines[-1][1]["value"]["text"]) == 12
    assert add_up.description == "Adds up."


def test_an_exception_reaches_the_caller_as_it_is_and_the_journal_as_text(journal: Any) -> None:
    @flow
    def broken() -> None:
        fail(3)

    with pytest.raises(ValueError, match="no 3"):
        broken()
    assert journal()[-1][1]["state"] == "failed"
    assert journal()[-1][1]["message"] == "ValueError: no 3"
    assert states(journal()) == ["failed"]


def test_parameters_are_checked_before_anything_runs(home: Path) -> None:
    @flow
    def typed(n: int) -> int:
        return n

    with pytest.raises(InvalidParameters, match="n: must be a whole number"):
        typed("x")
    assert not home.exists()


def test_recording_can_be_turned_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARHAND_RECORD", "0")
    assert flow(lambda: save_artifact(b"x", name="x") and double(2))() == 4
    assert not home.exists()


def test_files_that_are_not_recorded_go_with_their_process(tmp_path: Path) -> None:
    code = "from farhand import *\nprint(load_artifact(save_artifact(b'x', name='x')))"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    saved = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip()
    assert Path(saved).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_written_costs_one_warning(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.write_text("a file, where the directory should be")
    assert flow(lambda: double(2))() == 4
    assert capsys.readouterr().err.count("not recorded") == 1


def test_prints_reach_the_terminal_and_the_record(journal: Any, capsys: pytest.CaptureFixture[str]) -> None:
    @flow
    def talk() -> None:
        print("one")
        print("two", end="")
        sys.stdout.write(" three\n")
        print("end", end="")
        get_logger().error("four")

    talk()
    assert capsys.readouterr().out == "one\ntwo three\nend"
    assert logs(journal()) == ["one", "two three", "four", "end"]


def test_a_result_that_cannot_be_stored_is_returned_all_the_same(journal: Any) -> None:
    lock = flow(lambda: threading.Lock())()
    assert lock.acquire()
    assert journal()[-1][1]["state"] == "completed"


def test_the_record_rings_for_whoever_listens(home: Path) -> None:
    home.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(str(home / "inbox.sock"))
        bell.settimeout(10)
        flow(lambda: None)()
        assert bell.recv(10)


def test_a_killed_script_leaves_its_lock_free_and_a_running_one_holds_it(home: Path) -> None:
    program = (
        "import os, sys, time\nfrom farhand import flow\n"
        "@flow\ndef main():\n"
        "    read, write = os.pipe()\n"
        "    if os.fork() == 0:\n        os.write(write, b'.')\n        time.sleep(60)\n"
        "    os.read(read, 1)\n"  # the child has let go of what it inherited
        "    print('up', flush=True)\n    time.sleep(60)\nmain()\n"
    )
    script = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "up\n"
    (path,) = (home / "inbox").glob("*.jsonl")
    held = subprocess.run(["flock", "-n", str(path), "true"], check=False).returncode
    script.kill()
    script.wait()
    free = subprocess.run(["flock", "-n", str(path), "true"], check=False).returncode
    os.killpg(script.pid, signal.SIGKILL)
    script.stdout.close()
    assert (held, free) == (1, 0)


_LONG = """
import asyncio, sys, time
from farhand import flow, task
from farhand.sdk.context import current
@task
def waits(number):
    print("up", flush=True)
    time.sleep(60)
@flow
def alone(): waits(1)
@flow
def mapped():
    current().run.grace_s = 0.1
    waits.map([1]).result()
@flow
async def awaited():
    print("up", flush=True)
    await asyncio.sleep(60)
%s
"""


@pytest.mark.parametrize("called", ["alone()", "mapped()", "asyncio.run(awaited())"])
def test_ctrl_c_ends_a_script_with_one_sentence_and_its_run_is_cancelled(home: Path, called: str) -> None:
    code, said = interrupted(_LONG % called)
    (path,) = (home / "inbox").glob("*.jsonl")
    kind, body = json.loads(path.read_text().splitlines()[-1])[:2]
    assert code == 130
    name = re.search(r"alone|mapped|awaited", called)
    assert name is not None
    assert (
        said.splitlines(keepends=True)[-1]
        == f"farhand: interrupted; run {path.stem} of {name[0]} is recorded as cancelled\n"
    )
    assert (kind, body["state"], body["reason"]) == ("result", "cancelled", "interrupted")
    assert body["message"] == "the script was interrupted"


def test_a_script_may_see_to_ctrl_c_itself(home: Path) -> None:
    assert interrupted(_LONG % "try: alone()\nexcept KeyboardInterrupt: sys.exit(7)") == (7, "")
    assert (
        interrupted(_LONG % "sys.excepthook = lambda *_: print('mine', file=sys.stderr)\nalone()")[1]
        == "mine\n"
    )
    assert "ZeroDivisionError" in interrupted(_LONG % "try: alone()\nexcept KeyboardInterrupt: 1 / 0")[1]


def interrupted(program: str) -> tuple[int, str]:
    """The exit code of a program that gets Ctrl-C once it has said a line, and what it says on stderr."""
    script = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "up\n"
    script.send_signal(signal.SIGINT)
    _, said = script.communicate(timeout=60)
    return script.returncode, said


# ------------------------------------------------------------ calls


def run_here(body: Any) -> Any:
    return flow(name="here")(body)()


def test_map_keeps_the_order_of_any_iterable() -> None:
    """B099: a generator, nothing at all, and what another map gave."""
    assert run_here(lambda: double.map(x for x in range(50)).result()) == [2 * x for x in range(50)]
    assert run_here(lambda: double.map([]).result()) == []
    assert run_here(lambda: double.map(double.map(range(5))).result()) == [0, 4, 8, 12, 16]


def test_map_repeats_what_is_no_iterable() -> None:
    @task
    def join(a: str, b: int, c: str = "") -> str:
        return f"{a}{b}{c}"

    assert run_here(lambda: join.map("ab", range(2), c="!").result()) == ["ab0!", "ab1!"]


@pytest.mark.parametrize("arguments", [([1, 2], [1]), ([1], iter(())), ({1: 2},), (5,), ((), [1])])
def test_map_refuses_what_does_not_fit_before_anything_runs(arguments: Any, journal: Any) -> None:
    """B099: unequal lengths, a dict and what is no iterable fail at once and never hang."""
    with pytest.raises(TypeError):
        run_here(lambda: double.map(*arguments))
    assert states(journal()) == []


def test_futures_in_arguments_are_resolved_however_deep() -> None:
    @task
    def total(parts: Any) -> int:
        return sum(parts["a"]) + parts["b"][0]

    def body() -> int:
        one = double.submit(1)
        return total({"a": [one, double.submit(one)], "b": (one,)})

    assert run_here(body) == 8


def test_a_failed_future_fails_what_depends_on_it() -> None:
    with pytest.raises(ValueError, match="no 1"):
        run_here(lambda: double.submit(fail.submit(1)).result())


def test_calls_that_wait_for_calls_never_use_up_the_threads() -> None:
    @task
    def tree(depth: int) -> int:
        return 1 if depth == 0 else sum(tree.map([depth - 1] * 3).result())

    assert run_here(lambda: tree.submit(4).result()) == 81


def test_calls_that_nobody_waits_for_are_finished_before_the_flow_is(journal: Any) -> None:
    @task
    def slow() -> None:
        time.sleep(0.05)

    run_here(lambda: slow.submit() and None)
    assert states(journal()) == ["completed"]


def test_a_task_is_retried_as_often_as_it_says(journal: Any) -> None:
    tries: list[int] = []

    @task(retries=2)
    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("again")
        return len(tries)

    assert run_here(flaky) == 3
    (checkpoint,) = [body for kind, body, *_ in journal() if kind == "checkpoint"]
    assert checkpoint["attempts"] == 3
    assert len([text for text in logs(journal()) if "failed, again at once: ValueError: again" in text]) == 2


def test_a_flow_retry_calls_again_only_what_has_not_completed(journal: Any) -> None:
    made: list[str] = []

    @task
    def good() -> list[int]:
        made.append("good")
        return [1]

    @task
    def bad() -> None:
        made.append("bad")
        if made.count("bad") == 1:
            raise ValueError("once")

    @flow(retries=1)
    def main() -> list[int]:
        value = good()
        bad()
        return value

    assert main() == [1]
    assert made == ["good", "bad", "bad"]


def test_timeouts_raise_where_the_call_stands() -> None:
    @task(timeout=0.1)
    def slow() -> None:
        time.sleep(60)

    with pytest.raises(TimedOut, match=r"slow took longer than its timeout of 0\.1 s"):
        run_here(slow)
    with pytest.raises(TimedOut, match="here"):
        flow(name="here", timeout=0.1)(lambda: time.sleep(60))()


def test_a_timeout_in_a_thread_ends_python_code() -> None:
    ended = threading.Event()

    @task(timeout="100ms")
    def spin() -> None:
        try:
            while True:
                time.sleep(0.001)
        finally:
            ended.set()

    with pytest.raises(TimedOut):
        run_here(lambda: spin.submit().result())
    assert ended.is_set()


def test_the_timeout_of_a_caller_is_not_a_failure_of_what_it_calls(journal: Any) -> None:
    tries: list[int] = []

    @task(timeout=60, retries=5)
    def inner() -> None:
        tries.append(1)
        time.sleep(60)

    @task(timeout=0.1)
    def outer() -> None:
        inner()

    with pytest.raises(TimedOut, match="outer"):
        run_here(outer)
    assert tries == [1]
    assert states(journal()) == ["cancelled", "failed"]


def test_a_task_that_needs_a_machine_fails_in_a_script_and_says_how_to_start_it() -> None:
    @task(device="gpu")
    def fit() -> int:
        return 1

    with pytest.raises(NotSupported, match="farhand runs start here"):
        run_here(fit)


def test_a_task_that_prefers_a_machine_runs_here_in_a_script() -> None:
    @task(device="gpu", device_policy="prefer")
    def fit() -> int:
        return 1

    assert run_here(fit) == 1


def test_a_nested_flow_is_one_call_of_its_parent(journal: Any) -> None:
    inner = flow(name="inner")(lambda: [current_run().flow, current_run().task])
    assert run_here(inner) == ["inner", None]
    assert states(journal()) == ["completed"]
    assert journal()[0][1]["flow"] == "here"


def test_artifacts_are_kept_by_content(home: Path, tmp_path: Path, journal: Any) -> None:
    file = tmp_path / "table.csv"
    file.write_text("a,b\n")
    reference = run_here(lambda: save_artifact(file))
    assert (reference.name, reference.size) == ("table.csv", 4)
    (artifact,) = [body for kind, body, *_ in journal() if kind == "artifact"]
    assert artifact["media_type"] == "text/csv"
    assert run_here(lambda: load_artifact(reference).read_text()) == "a,b\n"


def test_what_is_not_finite_can_be_emitted(journal: Any) -> None:
    run_here(lambda: emit(loss=float("nan"), n=1))
    (metric,) = [body for kind, body, *_ in journal() if kind == "metric"]
    assert metric["values"] == {"loss": "nan", "n": 1.0}
    with pytest.raises(TypeError):
        emit(loss="1")


def test_everything_exported_is_there() -> None:
    for name in farhand.__all__:
        assert getattr(farhand, name)


def test_the_streams_are_given_back() -> None:
    before = sys.stdout, sys.stderr
    run_here(lambda: None)
    assert (sys.stdout, sys.stderr) == before


def test_a_script_that_the_process_of_its_task_reads_starts_nothing_there(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from farhand import flow, task\n"
        "@task(process=True)\ndef add(n): return n + 1\n"
        "@flow\ndef total(): return add(1)\n"
        "print(total())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "FARHAND_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    words = 'script.py calls total as it is imported; put the call under `if __name__ == "__main__":`'
    assert done.stderr.splitlines()[-1].endswith(words)
    assert len(list((tmp_path / "home" / "inbox").glob("*.jsonl"))) == 1
