"""An engine and its agent: what is told, in which order, and what is put back between two jobs."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from farhand_worker.manifest import write_manifest
from tests.integration.conftest import Begin


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
    """B106: each under the task that wrote it."""
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


def test_what_c_code_prints_is_there_when_its_job_has_ended(begin: Begin) -> None:
    """B106: in the log of that job, and not of one that comes much later."""
    agent = begin("import ctypes\n@flow\ndef main():\n    ctypes.CDLL(None).printf(b'from C\\n')\n")
    agent.run("pipeline:main")
    assert b"from C\n" in agent.drain()


def test_a_forked_child_prints_to_the_descriptor_and_records_nothing(begin: Begin) -> None:
    """B106: as the children of multiprocessing and joblib do."""
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


@pytest.mark.parametrize("told", [False, True])
def test_a_result_may_be_told_before_the_process_is_put_back_and_after_all_it_had_started_has_ended(
    begin: Begin, told: bool
) -> None:
    agent = begin(
        "import subprocess\n@flow\ndef main():\n    os.umask(0)\n"
        "    return subprocess.Popen(['sleep', '600']).pid\n"
        "@flow\ndef look(): return os.umask(0o22)\n"
    )
    agent.start("pipeline:main", tell_result=told)
    agent.until("result" if told else "done")
    assert not os.path.exists(f"/proc/{agent.value()}")
    if told:
        agent.until("done")
    agent.run("pipeline:look", tell_result=told)
    assert agent.value() != 0
    assert agent.frames[-1]["retire"] is False
    assert [frame["type"] for frame in agent.frames if frame["type"] != "bell"][1:] == (
        ["result", "done", "result", "done"] if told else ["done", "done"]
    )


def test_a_result_is_not_told_ahead_while_a_thread_of_its_job_goes_on(begin: Begin) -> None:
    agent = begin(
        "@flow\ndef main():\n    def say():\n        while True: print('again')\n"
        "    threading.Thread(target=say, daemon=True).start()\n    time.sleep(0.05)\n"
    )
    agent.run("pipeline:main", tell_result=True)
    assert agent.frames[-1]["retire"] is True
    assert "result" not in [frame["type"] for frame in agent.frames]
    assert agent.result()["state"] == "completed", "nothing follows it in the spool"


@pytest.mark.fault("2.17")
@pytest.mark.parametrize(
    "change",
    [
        "os.nice(1)",
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (50, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
        "left.extend(open('/dev/null') for _ in range(150))",
    ],
    ids=lambda change: str(change).partition("(")[0],
)
def test_an_engine_that_a_job_leaves_other_than_it_began_is_retired(begin: Begin, change: str) -> None:
    """Its next job would be slow, out of files, or deaf to its timeout for another's doing."""
    if "affinity" in change and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one processor")
    agent = begin(
        f"import resource, signal\nleft = []\n@flow\ndef main():\n    {change}\n@flow\ndef fine(): pass\n"
    )
    agent.run("pipeline:fine")
    assert agent.frames[-1]["retire"] is False
    agent.run("pipeline:main")
    assert agent.frames[-1]["retire"] is True


def test_an_engine_that_has_grown_too_large_is_retired(begin: Begin) -> None:
    agent = begin("@flow\ndef first(): pass\n@flow\ndef main(): time.sleep(0.03)\n")
    agent.run("pipeline:first", memory_bytes_max=1 << 40)
    assert agent.frames[-1]["retire"] is False
    agent.run("pipeline:main", memory_bytes_max=1 << 40)
    assert agent.frames[-1]["retire"] is False
    agent.run("pipeline:main", memory_bytes_max=1 << 20)
    assert agent.frames[-1]["retire"] is True


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


def test_an_engine_whose_agent_is_gone_before_it_is_answered_ends_as_well(begin: Begin) -> None:
    agent = begin("@flow\ndef main():\n    print('busy')\n    time.sleep(60)\n")
    agent.start("pipeline:main")
    agent.until_event("log")
    agent.send("arm", read=0, acked=0)  # is answered by a bell, which nobody is there to hear
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


def test_user_code_finds_the_garbage_collector_at_work_and_the_engine_out_of_its_way(
    begin: Begin,
) -> None:
    agent = begin("import gc\n@flow\ndef main(): return [gc.isenabled(), gc.get_freeze_count() > 0]\n")
    assert json.loads(agent.run("pipeline:main")["value"]["text"]) == [True, True]
