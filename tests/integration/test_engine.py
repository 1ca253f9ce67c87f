"""A real engine process, driven by a fake agent over its socket."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farhand_worker.manifest import write_manifest
from tests.integration.fake_agent import FakeAgent, make_runtime

Begin = Callable[..., FakeAgent]


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runtime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def begin(tmp_path: Path, runtime: Path) -> Iterator[Begin]:
    agents: list[FakeAgent] = []

    def start(text: str, **env: str) -> FakeAgent:
        python = os.environ.get("FARHAND_TEST_PYTHON", sys.executable)
        agent = FakeAgent(tmp_path / f"state{len(agents)}", runtime, python, **env)
        agents.append(agent)
        agent.bundle("pipeline.py", "from farhand import *\nimport os, sys, time, threading\n" + text)
        return agent

    yield start
    for agent in agents:
        agent.close()


def test_a_run_completes_and_its_events_come_in_order(begin: Begin) -> None:
    agent = begin(
        "@task\ndef double(x): return 2 * x\n"
        "@flow\ndef main(n: int = 3):\n"
        "    print('hello')\n    emit(loss=0.5)\n"
        "    return double.map(range(n)).result()\n"
    )
    result = agent.run("pipeline:main", {"n": "4"})
    assert json.loads(result["value"]["text"]) == [0, 2, 4, 6]
    kinds = [line[0] for line in agent.lines()]
    assert kinds[:3] == ["started", "log", "metric"]
    assert kinds[-1] == "result"
    assert sorted(body["index"] for body in agent.events("checkpoint")) == [0, 1, 2, 3]
    assert agent.events("metric")[0]["values"] == {"loss": 0.5}


def test_bells_ring_only_when_armed_and_the_end_of_the_job_is_a_frame_of_its_own(begin: Begin) -> None:
    agent = begin("@flow\ndef main():\n    for i in range(100): print(i)\n")
    agent.start("pipeline:main")
    bells = []
    while True:
        frame = agent.receive()
        assert frame is not None
        if frame["type"] == "done":
            break
        bells.append(frame["urgent"])
    assert bells == [False]


def test_an_engine_that_begins_unarmed_rings_once_it_is_armed_however_early_that_is(begin: Begin) -> None:
    agent = begin("@flow\ndef main():\n    time.sleep(60)\n")
    agent.send("arm", read=0, acked=0)  # it comes while no job is under way yet
    agent.start("pipeline:main", armed=False)
    agent.until("bell")
    agent.send("cancel", reason="cancelled")
    agent.until("done")


def test_an_arm_that_has_not_read_everything_is_answered_by_a_bell(begin: Begin) -> None:
    agent = begin("@flow\ndef main():\n    print('one')\n    time.sleep(60)\n")
    agent.start("pipeline:main")
    agent.until("bell")
    agent.send("arm", read=1, acked=0)
    agent.until("bell")
    agent.send("cancel", reason="cancelled")
    agent.until("done")


PATHS = (
    "from pathlib import Path\n@flow\ndef main(at: Path, n: int = 0):\n    return [at, Path('/made/here')]\n"
)


def test_paths_outside_what_is_shared_are_told_once_each(begin: Begin) -> None:
    agent = begin(PATHS)
    assert agent.run("pipeline:main", {"at": "/data/x"}, shared_paths=["/mnt"])["state"] == "completed"
    assert [body["path"] for body in agent.events("local_path")] == ["/data/x", "/made/here"]
    assert [text.partition(" ")[0] for text in agent.texts("log")] == ["/data/x", "/made/here"]


@pytest.mark.parametrize("shared", [None, ["/data", "/made"]])
def test_paths_are_nothing_to_tell_beside_the_server_and_where_they_are_shared(
    begin: Begin, shared: list[str] | None
) -> None:
    agent = begin(PATHS)
    assert agent.run("pipeline:main", {"at": "/data/x"}, shared_paths=shared)["state"] == "completed"
    assert agent.events("local_path") == []
    assert agent.texts("log") == []


def test_a_placed_call_waits_for_its_outcome(begin: Begin) -> None:
    agent = begin(
        "@task(device=['gpu', 'zone=eu'], retries=2, timeout='2h')\ndef fit(x, lr=0.1): return 1\n"
        "@flow\ndef main(): return fit(3) + 1\n"
    )
    agent.start("pipeline:main")
    call = agent.until_event("call")
    asked = {"labels": ["gpu", "zone=eu"], "policy": "require", "runs_on": "any"}
    assert {name: call["ask"][name] for name in asked} == asked
    assert call["settings"]["retries"] == 2
    assert call["settings"]["timeout_s"] == 7200
    assert call["entry"] == "pipeline:fit"
    assert json.loads(call["args"]["text"]) == [[3], {}]
    agent.outcome(call, value=41)
    agent.outcome(call, value=99)
    agent.until("done")
    assert agent.value() == 42
    assert agent.events("checkpoint") == []


def test_the_hooks_of_a_placed_task_are_called_where_its_flow_is_and_not_on_replay(begin: Begin) -> None:
    agent = begin(
        "def told(summary): print('told', summary['state'], summary['result'], summary['params'])\n"
        "@task(device='gpu', on_completed=told, on_failed=told)\ndef fit(x): return 1\n"
        "@flow\ndef main(): return fit(3)\n"
    )
    agent.start("pipeline:main")
    call = agent.until_event("call")
    agent.outcome(call, value=41)
    agent.until("done")
    assert agent.value() == 41
    assert agent.texts() == ["told completed 41 {'x': 3}"]
    value = {"enc": "json", "text": "41"}
    body = {"key": call["key"], "name": "fit", "state": "completed", "value": value, "error": None}
    agent.kept = [{"number": 1, "key": call["key"], "body": body}]
    agent.run("pipeline:main")
    assert agent.value() == 41
    assert agent.texts() == []


def test_a_changed_run_replays_what_it_took_over_up_to_the_first_call_without_it(begin: Begin) -> None:
    agent = begin(
        "@task\ndef step(x):\n    print('ran', x)\n    return x\n"
        "@flow\ndef main(n: int = 0): return [step(1), step(10 + n), step(3)]\n"
    )
    agent.run("pipeline:main")
    agent.keep_outcomes()
    agent.kept = [{**item, "seeded": True} for item in agent.kept]
    agent.run("pipeline:main", {"n": 1}, settings={"in_order": True})
    assert (agent.value(), agent.texts()) == ([1, 11, 3], ["ran 11", "ran 3"])
    agent.run("pipeline:main", settings={"in_order": True})
    assert agent.texts() == []
    agent.run("pipeline:main", {"n": 1})
    assert agent.texts() == ["ran 11"]


def test_a_stopped_engine_does_not_end_the_flow_it_had_called(begin: Begin) -> None:
    agent = begin(
        "@flow\ndef inner():\n    print('inside', current_run().id)\n    time.sleep(60)\n"
        "@flow\ndef main(): return inner()\n"
    )
    agent.start("pipeline:main", settings={"called": {"other": "0other01"}})
    agent.until_event("log")
    flow = agent.events("task")[0]["flow"]
    assert agent.texts() == [f"inside {flow['id']}"]
    os.kill(agent.process.pid, signal.SIGTERM)
    assert agent.process.wait(10) == 143
    [end] = agent.events("checkpoint")
    assert (end["state"], end["kept"], "flow" in end) == ("cancelled", False, False)


def test_a_thousand_placed_calls_take_no_threads(begin: Begin) -> None:
    agent = begin(
        "@task(runs_on='worker')\ndef fit(x): return 1\n"
        "@flow\ndef main():\n    calls = fit.map(range(1000))\n    print(threading.active_count())\n"
        "    return sum(calls.result())\n"
    )
    agent.start("pipeline:main")
    for number in range(1000):
        agent.outcome(
            agent.until_event("call", number + 1) if number == 999 else _nth_call(agent, number), value=2
        )
    agent.until("done")
    assert agent.value() == 2000
    assert int(agent.texts()[0]) < 8


def _nth_call(agent: FakeAgent, number: int) -> dict[str, Any]:
    if number == 0:
        agent.until_event("call", 1000)
        agent.all_calls = agent.events("call")  # type: ignore[attr-defined]
    return agent.all_calls[number]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("outcome", "seen"),
    [
        (
            {"state": "failed", "error": {"type": "Odd", "module": "x", "message": "no"}},
            "TaskFailed: Odd: no",
        ),
        ({"state": "crashed"}, "WorkerLost: worker went away mid-call"),
    ],
)
def test_a_placed_call_that_fails_raises(begin: Begin, outcome: dict[str, Any], seen: str) -> None:
    agent = begin("@task(runs_on='worker')\ndef far(): pass\n@flow\ndef main(): far()\n")
    agent.start("pipeline:main")
    agent.outcome(agent.until_event("call"), **outcome)
    agent.until("done")
    assert agent.result()["message"] == seen


def test_an_exception_from_elsewhere_keeps_its_type(begin: Begin) -> None:
    agent = begin(
        "class Odd(Exception): pass\n"
        "@task(runs_on='worker')\ndef far(x): raise Odd(x)\n"
        "@flow\ndef main():\n    try: far(7)\n    except Odd as error: return error.args[0]\n"
    )
    agent.run("pipeline:far", [[7], {}], kind="call", key="k1")
    error = agent.result()["error"]
    assert error["type"] == "Odd"
    agent.start("pipeline:main")
    agent.outcome(agent.until_event("call"), state="failed", error=error)
    agent.until("done")
    assert agent.value() == 7


def test_a_call_job_runs_the_task_under_the_scope_of_its_key(begin: Begin) -> None:
    agent = begin(
        "@task\ndef inner(x): return x\n"
        "@task(device='gpu')\ndef fit(x, y=1):\n    print('here')\n    return inner(x) + y\n"
    )
    agent.run("pipeline:fit", [[3], {"y": 5}], kind="call", key="abc")
    assert agent.value() == 8
    assert agent.events("checkpoint")[0]["scope"] == "abc"
    assert agent.events("log")[0]["task"] == "abc"


def test_kept_outcomes_replay_in_any_order_and_are_not_recorded_again(begin: Begin) -> None:
    agent = begin(
        "@task\ndef part(x):\n    print('made', x)\n    return {'part': x, 'more': list(range(100))}\n"
        "@task\ndef total(parts): return sum(p['part'] for p in parts)\n"
        "@flow\ndef main(reverse: bool):\n"
        "    order = [2, 1, 0] if reverse else [0, 1, 2]\n"
        "    parts = {i: part(i) for i in order}\n"
        "    return total([parts[0], parts[1], parts[2]])\n"
    )
    agent.run("pipeline:main", {"reverse": False})
    assert len(agent.events("checkpoint")) == 4
    agent.keep_outcomes()
    agent.run("pipeline:main", {"reverse": True})
    assert agent.value() == 3
    assert agent.events("checkpoint") == []
    assert agent.texts() == []


def test_kept_failures_replay_after_a_crash_and_run_again_where_they_are_not_kept(begin: Begin) -> None:
    agent = begin(
        "@task\ndef bad():\n    print('tried')\n    raise ValueError('no')\n"
        "@flow\ndef main():\n    try: bad()\n    except ValueError as error: return str(error)\n"
    )
    agent.run("pipeline:main")
    agent.keep_outcomes()
    agent.run("pipeline:main")
    assert agent.value() == "no"
    assert agent.texts() == []
    agent.kept = []
    agent.run("pipeline:main")
    assert agent.texts() == ["tried"]


def test_a_retry_asks_again_for_a_placed_call_under_the_same_key(begin: Begin) -> None:
    agent = begin("@task(runs_on='worker')\ndef far(): pass\n@flow\ndef main(): return far()\n")
    agent.start("pipeline:main")
    call = agent.until_event("call")
    agent.outcome(call, state="failed", error={"type": "X", "module": "x", "message": "no"})
    agent.until("done")
    agent.start("pipeline:main")
    again = agent.until_event("call")
    assert again["key"] == call["key"]
    agent.outcome(again, value=5)
    agent.until("done")
    assert agent.value() == 5


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
    os.kill(agent.process.pid, signal.SIGTERM)
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
def test_a_result_that_cannot_be_stored_fails_the_run_naming_its_type(begin: Begin) -> None:
    agent = begin("@flow\ndef main(): return threading.Lock()\n")
    result = agent.run("pipeline:main")
    assert result["reason"] == "not_serializable"
    assert "_thread.lock" in result["message"]


@pytest.mark.fault("2.3")
def test_a_task_result_that_cannot_be_stored_is_used_and_said_once(begin: Begin) -> None:
    agent = begin(
        "@task\ndef lock(): return threading.Lock()\n"
        "@flow\ndef main(): return lock().locked() or lock().locked()\n"
    )
    agent.run("pipeline:main")
    assert agent.value() is False
    assert [body["kept"] for body in agent.events("checkpoint")] == [False, False]
    assert len([text for text in agent.texts() if "not kept" in text]) == 1


def test_bad_parameters_fail_the_run_and_are_not_shown(begin: Begin) -> None:
    agent = begin("@flow\ndef main(n: int): return n\n")
    result = agent.run("pipeline:main", {"n": "s3cret"})
    assert result["reason"] == "parameters"
    assert "n: must be a whole number" in result["message"]
    assert "s3cret" not in result["message"]


def test_a_module_that_is_missing_here_is_for_another_machine_to_import(begin: Begin) -> None:
    agent = begin("import nowhere_to_be_found\n@flow\ndef main(): pass\n")
    result = agent.run("pipeline:main")
    assert (result["state"], result["reason"]) == ("unfit", "code_missing")
    assert result["error"]["type"] == "ModuleNotFoundError"
    assert agent.frames[-1]["retire"], "what was half imported serves no other job"


def test_arguments_that_do_not_load_here_are_for_another_machine_to_load(begin: Begin) -> None:
    agent = begin("@task\ndef work(x): return x\n")
    pickled = base64.b64encode(b"cnowhere_to_be_found\nPoint\n.").decode()
    result = agent.run("pipeline:work", kind="call", value={"enc": "pickle", "text": pickled})
    assert (result["state"], result["reason"]) == ("unfit", "arguments_do_not_load")
    assert "nowhere_to_be_found" in result["message"]


def test_an_import_check_imports_and_calls_nothing(begin: Begin) -> None:
    agent = begin("print('imported')\n@flow\ndef main(): print('called')\n")
    assert agent.run("pipeline:main", kind="import")["state"] == "completed"
    assert agent.texts() == ["imported"]
    assert not agent.frames[-1]["retire"], "the job finds its modules loaded"
    agent.run("pipeline:main")
    assert agent.texts() == ["called"]


def test_an_import_check_names_what_only_shows_when_the_code_runs(begin: Begin, tmp_path: Path) -> None:
    agent = begin("import importlib\nimportlib.import_module('plug' + 'in')\n@flow\ndef main(): pass\n")
    agent.bundle("plugin.py", "x = 1\n")
    manifest = tmp_path / "manifest"
    manifest.write_bytes(write_manifest({"pipeline.py": "0" * 64}))
    result = agent.run("pipeline:main", kind="import", manifest=str(manifest))
    assert (result["state"], result["error"]["type"]) == ("failed", "NotIncluded")
    assert "imports plugin.py by a name" in result["message"]
    assert "include" in result["message"]


def test_prints_reach_the_log_once_and_print_to_a_file_does_not(begin: Begin) -> None:
    agent = begin(
        "import io, logging, subprocess\n"
        "@task\ndef say():\n    print('in task', end='')\n    sys.stderr.write('err\\n')\n"
        "@flow\ndef main():\n"
        "    buf = io.StringIO()\n    print('a', file=buf)\n    assert buf.getvalue() == 'a\\n'\n"
        "    print('x', 'y', sep='-')\n    say()\n"
        "    sys.stdout.buffer.write(b'\\xc3')\n    sys.stdout.buffer.write(b'\\xa9\\xff\\n')\n"
        "    os.write(1, b'\\xb2\\xff raw\\n')\n"
        "    subprocess.run(['echo', 'child'])\n"
        "    print('\\ud800 lone')\n"
        "    get_logger('mine').warning('careful %d', 1)\n"
        "    assert not sys.stdout.isatty()\n"
        "    t = threading.Thread(target=print, args=('from a thread',))\n    t.start()\n    t.join()\n"
    )
    agent.run("pipeline:main")
    assert agent.result()["state"] == "completed", agent.result()
    assert agent.texts("stdout") == ["x-y", "in task", "é�", "\ud800 lone", "from a thread"]
    assert agent.texts("stderr") == ["err"]
    by_text = {body["text"]: body for body in agent.events("log")}
    assert by_text["in task"]["task"]
    assert "task" not in by_text["x-y"]
    assert by_text["careful 1"]["level"] == "warning"
    assert b"\xb2\xff raw\n" in agent.drain()
    assert b"child\n" in agent.raw


def test_a_forked_child_prints_to_the_descriptor_and_records_nothing(begin: Begin) -> None:
    agent = begin(
        "@task\ndef work(): return 1\n"
        "@flow\ndef main():\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n        print('in the child', work())\n        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n    print('parent')\n    return work()\n"
    )
    agent.run("pipeline:main")
    assert agent.texts() == ["parent"]
    assert len(agent.events("checkpoint")) == 1
    assert b"in the child 1\n" in agent.drain()


@pytest.mark.fault("2.17")
def test_the_process_is_put_back_between_two_jobs(begin: Begin) -> None:
    agent = begin(
        "import signal, subprocess, logging\n"
        "@flow\ndef mess():\n"
        "    os.chdir('/')\n    os.environ['MESS'] = '1'\n    os.environ.pop('HOME', None)\n"
        "    sys.path.insert(0, '/mess')\n"
        "    os.umask(0)\n    signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n    sys.argv.append('mess')\n"
        "    logging.basicConfig()\n    sys.stdout = None\n"
        "    return subprocess.Popen(['sh', '-c', 'trap \"\" TERM; setsid sleep 300 & sleep 300']).pid\n"
        "@flow\ndef look():\n"
        "    umask = os.umask(0o22)\n    print('still logged')\n"
        "    return [os.getcwd(), os.environ.get('MESS'), '/mess' in sys.path, umask,\n"
        "        str(signal.getsignal(signal.SIGUSR1)), sys.argv[1:],\n"
        "        logging.getLogger().handlers, 'HOME' in os.environ]\n"
    )
    agent.run("pipeline:mess")
    child = agent.value()
    assert not os.path.exists(f"/proc/{child}")
    assert agent.frames[-1]["retire"] is False
    agent.run("pipeline:look")
    cwd, mess, path, umask, handler, argv, handlers, home = agent.value()
    assert cwd == str(agent.directory / "scratch")
    assert (mess, path, argv, handlers, home) == (None, False, [], [], "HOME" in os.environ)
    assert umask == os.umask(os.umask(umask) and umask) or umask != 0
    assert "SIG_DFL" in handler or handler == "0"
    assert agent.texts() == ["still logged"]


@pytest.mark.fault("2.17")
def test_an_engine_with_a_thread_left_over_is_retired(begin: Begin) -> None:
    agent = begin("@flow\ndef main(): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n")
    agent.start("pipeline:main")
    assert agent.until("done")["retire"] is True
    agent.send("quit")
    assert agent.process.wait(10) == 0


def test_modules_of_an_earlier_bundle_are_not_used_by_the_next(begin: Begin) -> None:
    agent = begin("import helper\n@flow\ndef main(): return helper.WORD\n")
    agent.bundle("helper.py", "WORD = 'first'\n")
    agent.bundle(
        "pipeline.py",
        "from farhand import flow\nimport helper\n@flow\ndef main(): return helper.WORD\n",
        "b2",
    )
    agent.bundle("helper.py", "WORD = 'second'\n", "b2")
    agent.run("pipeline:main")
    assert agent.value() == "first"
    agent.run("pipeline:main", directory="b2")
    assert agent.value() == "second"


def test_a_projects_own_queue_module_shadows_nothing_of_the_engine(begin: Begin) -> None:
    agent = begin("@flow\ndef main(): return 1\n")
    for name in ("socket", "logging", "json"):
        agent.bundle(f"{name}.py", "raise ImportError('the wrong one')\n")
    agent.bundle("queue.py", "from farhand import flow\n@flow\ndef main(): return 'mine'\n")
    agent.run("pipeline:main")
    assert agent.value() == 1
    agent.run("queue:main")
    assert agent.value() == "mine"


def test_python_path_and_site_packages_work(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "farhand_extra.py").write_text("WORD = 'found'\n")
    agent = begin(
        "@flow\ndef main():\n    import farhand_extra\n"
        "    return [farhand_extra.WORD, any('site-packages' in p for p in sys.path)]\n",
        PYTHONPATH=str(tmp_path / "extra"),
    )
    agent.run("pipeline:main")
    assert agent.value() == ["found", True]


def test_an_engine_whose_agent_is_gone_ends_at_once(begin: Begin) -> None:
    agent = begin("@flow\ndef main():\n    print('busy')\n    time.sleep(60)\n")
    agent.start("pipeline:main")
    agent.until_event("log")
    agent.sock.close()
    assert agent.process.wait(10) == 75


def test_big_results_and_artifacts_become_blobs_named_before_use(begin: Begin) -> None:
    agent = begin(
        "@task\ndef big(): return 'x' * 100_000\n"
        "@flow\ndef main():\n"
        "    ref = save_artifact(b'hello', name='a.txt')\n"
        "    assert load_artifact(ref).read_bytes() == b'hello'\n"
        "    return [big(), ref]\n"
    )
    result = agent.run("pipeline:main")
    assert result["state"] == "completed", result
    lines = {line[0]: line for line in agent.lines()}
    for kind in ("artifact", "checkpoint", "result"):
        (digest,) = lines[kind][2]
        assert (agent.directory / "blobs" / digest.partition(":")[2]).exists()
    assert lines["artifact"][1]["media_type"] == "text/plain"
    agent.keep_outcomes()
    agent.run("pipeline:main")
    assert agent.events("checkpoint") == []


def test_a_nested_flow_is_a_call_of_its_parent(begin: Begin) -> None:
    agent = begin("@flow\ndef inner(x: int): return x + 1\n@flow\ndef main(): return inner('4')\n")
    agent.run("pipeline:main")
    assert agent.value() == 5
    assert [body["name"] for body in agent.events("checkpoint")] == ["inner"]


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
    os.kill(agent.process.pid, signal.SIGTERM)
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
    for _ in range(25):
        agent.start("pipeline:main")
        agent.until_event("checkpoint")
        agent.send("cancel", reason="cancelled")
        assert agent.until("done")["retire"] is False
        assert agent.result()["state"] == "cancelled"
