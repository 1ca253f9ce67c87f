"""How what an engine runs ends: cancelled, timed out, failed, or with a result that cannot be kept."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.integration.conftest import Begin


def test_cancel_interrupts_a_sleep_at_once(begin: Begin) -> None:
    agent = begin(
        "@flow\ndef main():\n    print('asleep')\n    try: time.sleep(60)\n    finally: print('cleaned up')\n"
    )
    agent.start("pipeline:main")
    agent.until_event("log")
    began = time.monotonic()
    agent.send("cancel", reason="cancelled")
    assert agent.until("done")["retire"] is False
    assert time.monotonic() - began < 2
    assert agent.result()["state"] == "cancelled"
    assert agent.texts() == ["asleep", "cleaned up"]


@pytest.mark.parametrize("body", ["time.sleep(60)", "while True: pass"], ids=["sleeps", "computes"])
def test_a_cancel_that_comes_with_the_job_ends_it(begin: Begin, body: str) -> None:
    """Nobody reads between the two: a thread that stands by finds the second."""
    agent = begin(f"@flow\ndef main():\n    {body}\n@flow\ndef fine(): pass\n")
    for _ in range(2):
        agent.run("pipeline:fine")
        agent.start("pipeline:main")
        agent.send("cancel", reason="cancelled")
        agent.until("done")
        assert agent.result()["state"] == "cancelled"


def test_cancel_ends_calls_that_wait_for_other_machines(begin: Begin) -> None:
    agent = begin(
        "@task(runs_on='worker')\ndef far(x): pass\n@flow\ndef main(): far.map(range(3)).result()\n"
    )
    agent.start("pipeline:main")
    agent.until_event("call", 3)
    agent.send("cancel", reason="cancelled")
    agent.until("done")
    assert agent.result()["state"] == "cancelled"


def test_sigterm_without_a_cancel_stops_the_engine_without_a_result(begin: Begin) -> None:
    agent = begin(
        "@flow\ndef main():\n    print('asleep')\n    try: time.sleep(60)\n    finally: print('cleaned up')\n"
    )
    agent.start("pipeline:main")
    agent.until_event("log")
    agent.process.send_signal(signal.SIGTERM)
    agent.process.wait(10)
    assert agent.events("result") == []
    assert agent.texts() == ["asleep", "cleaned up"]


def test_a_flow_timeout_fails_the_run(begin: Begin) -> None:
    agent = begin("@flow\ndef main(): time.sleep(60)\n")
    result = agent.run("pipeline:main", timeout_s=0.2)
    assert (result["state"], result["reason"]) == ("failed", "timeout")
    assert "0.2 s" in result["message"]


def test_a_task_timeout_in_the_flow_body_can_be_retried(begin: Begin) -> None:
    agent = begin(
        "tries = []\n"
        "@task(timeout=0.2, retries=1)\ndef slow():\n    tries.append(1)\n"
        "    if len(tries) == 1: time.sleep(60)\n    return len(tries)\n"
        "@flow\ndef main(): return slow()\n"
    )
    agent.run("pipeline:main")
    assert agent.value() == 2
    assert agent.events("checkpoint")[0]["attempts"] == 2


def test_a_timed_out_call_that_does_not_end_is_recorded_and_costs_the_engine(begin: Begin) -> None:
    agent = begin(
        "@task(timeout=0.2)\ndef stuck(): time.sleep(60)\n"
        "@flow\ndef main():\n    try: stuck.submit().result()\n"
        "    except Exception as error: return type(error).__name__\n"
    )
    agent.start("pipeline:main", grace_s=0.2)
    assert agent.until("done")["retire"] is True
    assert agent.value() == "TimedOut"
    assert [body["state"] for body in agent.events("checkpoint")] == ["failed"]


@pytest.mark.fault("2.16")
@pytest.mark.parametrize("where", ["here", "there"])
def test_a_retry_never_starts_while_a_timed_out_thread_still_receives(
    begin: Begin, tmp_path: Path, where: str
) -> None:
    """The call sits in a C function that no exception reaches; FAULTS B036."""
    agent = begin(
        "import ctypes, socket\n"
        "@task(timeout=0.2, retries=3)\n"
        "def receive(path):\n"
        "    with open(path, 'a') as file: file.write('began\\n')\n"
        "    ours, theirs = socket.socketpair()\n"
        "    ctypes.CDLL(None).recv(ours.fileno(), ctypes.create_string_buffer(1), 1, 0)\n"
        "@task(timeout=0.2, retries=1)\n"
        "def listen(path):\n"
        "    with open(path, 'a') as file: file.write('began\\n')\n"
        "    ours, theirs = socket.socketpair()\n"
        "    ours.recv(1)\n"
        "@flow\ndef here(path: str): listen(path)\n"
        "@flow\ndef there(path: str): receive.submit(path).result()\n"
    )
    witness = tmp_path / "witness"
    result = agent.run(f"pipeline:{where}", {"path": str(witness)}, grace_s=0.2)
    assert (result["state"], result["reason"]) == ("failed", "timeout")
    if where == "here":  # in the main thread a signal ends recv(), so the retry may begin
        assert witness.read_text().count("began") == 2
        assert agent.frames[-1]["retire"] is False
    else:  # no retry beside a call that still lives; the engine ends with it
        assert witness.read_text().count("began") == 1
        assert agent.frames[-1]["retire"] is True


def test_what_counts_a_jobs_time_elsewhere_is_told_while_its_module_is_imported(begin: Begin) -> None:
    """B009: it is no part of a timeout. Where the module was imported before, nothing is told."""
    agent = begin("time.sleep(0.5)\n@flow\ndef main():\n    time.sleep(0.1)\n    return 1\n")
    for told in ([True, False], []):
        agent.frames.clear()
        agent.run("pipeline:main", timeout_s=0.4)
        assert agent.value() == 1
        assert [frame["begins"] for frame in agent.frames if frame["type"] == "importing"] == told
        begun = [body.get("importing", False) for body in agent.events("started")]
        assert begun == (told or [False])


def test_an_engine_that_exits_by_itself_is_seen_as_the_end_of_its_socket(begin: Begin) -> None:
    agent = begin("@flow\ndef main():\n    print('going')\n    os._exit(3)\n")
    agent.start("pipeline:main")
    while agent.receive() is not None:
        pass
    assert agent.process.wait(10) == 3
    assert agent.texts() == ["going"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit('enough')", "SystemExit: enough"),
        ("raise MemoryError", "MemoryError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\n    f()", "RecursionError"),
        ("raise ValueError('bad')", "ValueError: bad"),
        ("raise GeneratorExit", "GeneratorExit"),
    ],
)
def test_whatever_ends_the_flow_is_a_failed_result(begin: Begin, body: str, message: str) -> None:
    agent = begin(f"@flow\ndef main():\n    {body}\n")
    result = agent.run("pipeline:main")
    assert result["state"] == "failed"
    assert result["message"].startswith(message)
    agent.bundle("again.py", "from farhand import flow\n@flow\ndef main(): return 1\n")
    agent.run("again:main")
    assert agent.value() == 1


@pytest.mark.fault("2.3")
@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ("main", "the result of main: a value of type _thread.lock cannot be stored: "),
        ("asks", "the arguments of far: a value of type builtins.list cannot be stored: "),
    ],
)
def test_what_cannot_be_stored_fails_the_run_and_is_named_with_its_type(
    begin: Begin, flow: str, message: str
) -> None:
    """B097: what must leave the process, a result or what another machine is given."""
    agent = begin(
        "@flow\ndef main(): return threading.Lock()\n"
        "@task(runs_on='server')\ndef far(lock): pass\n"
        "@flow\ndef asks(): far(threading.Lock())\n"
    )
    result = agent.run(f"pipeline:{flow}")
    assert result["reason"] == "not_serializable"
    assert result["message"].startswith(f"NotSerializable: {message}")


@pytest.mark.fault("2.3")
def test_a_task_result_that_cannot_be_stored_is_used_and_said_once(begin: Begin) -> None:
    """B097: that of a call in the same process; the others are kept."""
    agent = begin(
        "@task\ndef lock(): return threading.Lock()\n"
        "@task\ndef numbers(): return (n for n in range(4))\n"
        "@task\ndef plain(): return 6\n"
        "@flow\ndef main(): return [lock().locked() or lock().locked(), sum(numbers()), plain()]\n"
    )
    agent.run("pipeline:main")
    assert agent.value() == [False, 6, 6]
    assert [body["kept"] for body in agent.events("checkpoint")] == [False, False, False, True]
    assert len([text for text in agent.texts() if "lock is not kept" in text]) == 1


def test_bad_parameters_fail_the_run_and_are_not_shown(begin: Begin) -> None:
    agent = begin("@flow\ndef main(n: int): return n\n")
    result = agent.run("pipeline:main", {"n": "s3cret"})
    assert result["reason"] == "parameters"
    assert "n: must be a whole number" in result["message"]
    assert "s3cret" not in result["message"]


def test_running_calls_are_interrupted_when_the_flow_fails(begin: Begin) -> None:
    agent = begin(
        "@task\ndef spin():\n    while True: time.sleep(0.01)\n"
        "@flow\ndef main():\n    spin.submit()\n    time.sleep(0.2)\n    raise ValueError('no')\n"
    )
    agent.start("pipeline:main")
    assert agent.until("done")["retire"] is False
    assert agent.result()["message"] == "ValueError: no"
    assert agent.events("checkpoint")[0]["state"] == "cancelled"


def test_a_stuck_call_of_the_flow_body_is_recorded_before_the_engine_gives_itself_up(begin: Begin) -> None:
    agent = begin(
        "import signal\n"
        "@task(timeout=0.1)\ndef stuck():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])\n    time.sleep(60)\n"
        "@flow\ndef main(): stuck()\n"
    )
    agent.start("pipeline:main", grace_s=0.1)
    while agent.receive() is not None:
        pass
    assert agent.process.wait(10) == 70
    (checkpoint,) = agent.events("checkpoint")
    assert (checkpoint["state"], checkpoint["kept"]) == ("failed", True)


def test_code_that_swallows_a_cancel_is_asked_again_by_sigterm(begin: Begin) -> None:
    agent = begin(
        "@flow\ndef main():\n"
        "    print('asleep')\n"
        "    try: time.sleep(60)\n    except BaseException: print('swallowed')\n"
        "    time.sleep(60)\n"
    )
    agent.start("pipeline:main")
    agent.until_event("log")
    agent.send("cancel", reason="cancelled")
    agent.until_event("log", 2)
    agent.process.send_signal(signal.SIGTERM)
    agent.until("done")
    assert agent.result()["state"] == "cancelled"


@pytest.mark.parametrize(
    "call",
    [
        "saving()",
        pytest.param(
            "task(saving).submit().result()",
            marks=pytest.mark.skipif(sys.version_info < (3, 10), reason="nothing tells"),
        ),
    ],
)
def test_what_a_cancelled_job_saves_is_not_cut_short_by_sigterm(begin: Begin, call: str) -> None:
    """B033: it has the whole grace."""
    agent = begin(
        "def saving():\n"
        "    print('asleep')\n"
        "    try:\n        while True: time.sleep(0.01)\n"
        "    finally:\n"
        "        print('saving')\n"
        "        try: {}['nothing']\n"
        "        except KeyError: time.sleep(0.5)\n"
        "        time.sleep(0.5)\n"
        "        print('saved')\n"
        f"@flow\ndef main(): {call}\n"
    )
    agent.start("pipeline:main", grace_s=5.0)
    agent.until_event("log")
    agent.send("cancel", reason="cancelled")
    agent.until_event("log", 2)
    agent.process.send_signal(signal.SIGTERM)
    agent.until("done")
    assert agent.result()["state"] == "cancelled"
    assert agent.texts() == ["asleep", "saving", "saved"]


def test_code_that_swallows_a_cancel_after_a_while_is_struck_again(begin: Begin) -> None:
    agent = begin(
        "@flow\ndef main():\n"
        "    print('asleep')\n"
        "    try: time.sleep(60)\n"
        "    except BaseException:\n"
        "        print('swallowing')\n"
        "        time.sleep(0.5)\n"
        "    time.sleep(60)\n"
    )
    agent.start("pipeline:main")
    agent.until_event("log")
    agent.send("cancel", reason="cancelled")
    agent.until_event("log", 2)
    agent.process.send_signal(signal.SIGTERM)
    agent.until("done")
    assert agent.result()["state"] == "cancelled"


def test_a_failure_that_nobody_looked_at_is_said(begin: Begin) -> None:
    agent = begin(
        "@task\ndef bad(x): raise ValueError(x)\n"
        "@flow\ndef main():\n    seen = bad.submit(1)\n    bad.submit(2)\n    return str(seen.exception())\n"
    )
    agent.run("pipeline:main")
    assert agent.value() == "1"
    said = [body for body in agent.events("log") if body["level"] == "warning"]
    assert [body["text"] for body in said] == ["bad failed and nobody asked for its result: ValueError: 2"]


def test_cancels_at_any_moment_leave_the_engine_whole(begin: Begin) -> None:
    """Calls, threads and prints all the time: no lock of ours may stay held by an interrupted thread."""
    agent = begin(
        "@task\ndef step(i):\n    print('in', i)\n    return [i]\n"
        "@flow\ndef main():\n"
        "    for i in range(10**9):\n        step(i)\n        step.submit(i)\n"
    )
    for _ in range(12):
        agent.start("pipeline:main")
        agent.until_event("checkpoint")
        agent.send("cancel", reason="cancelled")
        assert agent.until("done")["retire"] is False
        assert agent.result()["state"] == "cancelled"
