"""Process tasks, durable calls and the names of runs in a real engine process."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from tests.harness.waiting import eventually
from tests.integration.conftest import Begin

WORK = """
import signal

@task(process=True)
def work(how, retries=0):
    print("in", current_run().task, how)
    emit(loss=1)
    progress(1, 2, "half way")
    if how == "killed": os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit": os._exit(0)
    if how == "raise": raise KeyError("k")
    if how == "stuck":
        print("pid", os.getpid())
        time.sleep(60)
    if how == "unpicklable": return threading.Lock()
    return os.getpid()
"""


def test_a_process_task_runs_in_a_child_and_reports_through_the_engine(begin: Begin) -> None:
    agent = begin(
        WORK + "@flow\ndef main(): return [work('a') != os.getpid(), *work.map(['b', 'c']).result()]\n"
    )
    agent.run("pipeline:main")
    assert agent.value()[0] is True
    assert len(set(agent.value())) == 3
    assert sorted(agent.texts()) == ["in work a", "in work b", "in work c"]
    assert [body["values"] for body in agent.events("metric")] == [{"loss": 1.0}] * 3
    first = agent.events("progress")[0]
    assert (first["done"], first["total"], first["message"]) == (1.0, 2.0, "half way")
    assert {body["task"] for body in agent.events("log")} == {body["key"] for body in agent.events("task")}


def test_a_child_that_has_closed_its_streams_has_its_outcome_all_the_same(begin: Begin) -> None:
    agent = begin(
        "import sys\n@task(process=True)\ndef quiet():\n    sys.stdout.close()\n    sys.stderr = None\n"
        "    return 7\n@flow\ndef main(): return quiet()\n"
    )
    agent.run("pipeline:main")
    assert agent.value() == 7


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("killed", "ProcessDied: the process of work ended: signal 9, possibly out of memory"),
        ("exit", "ProcessDied: the process of work ended: exit 0, without an outcome"),
        ("raise", "KeyError: 'k'"),
        ("unpicklable", "NotSerializable: the result of work cannot leave its process"),
    ],
)
def test_a_child_that_dies_is_a_failure_of_its_call_and_the_flow_goes_on(
    begin: Begin,
    how: str,
    said: str,
) -> None:
    agent = begin(
        WORK + "@flow\ndef main(how):\n"
        "    calls = [work.submit(h) for h in ('fine', how, 'fine')]\n"
        "    calls[0].result(); calls[2].result()\n"
        "    error = calls[1].exception()\n"
        "    return f'{type(error).__name__}: {error}'\n"
    )
    agent.run("pipeline:main", {"how": how})
    assert agent.value().startswith(said)


def test_a_timeout_and_a_cancel_kill_the_child(begin: Begin) -> None:
    agent = begin(
        WORK + "@task(process=True, timeout=1.2, retries=1)\n"
        "def slow(): print('pid', os.getpid()); time.sleep(60)\n"
        "@flow\ndef main(submit: bool):\n"
        "    try: slow.submit().result() if submit else slow()\n"
        "    except Exception as error: return f'{type(error).__name__}'\n"
        "@flow\ndef stuck(): work.submit('stuck').result()\n"
    )
    for submit in (False, True):
        agent.run("pipeline:main", {"submit": submit})
        assert agent.value() == "TimedOut"
        pids = [int(text.split()[1]) for text in agent.texts() if text.startswith("pid")]
        assert len(pids) == 2
        assert not any(map(psutil.pid_exists, pids))
    agent.start("pipeline:stuck")
    child = eventually(
        lambda: next((int(t.split()[1]) for t in agent.texts() if t.startswith("pid")), None),
        what="the child",
    )
    began = time.monotonic()
    agent.send("cancel", reason="cancelled")
    agent.until("done")
    assert time.monotonic() - began < 3
    assert agent.result()["state"] == "cancelled"
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize(
    ("import_s", "outcome"),
    [(30, "done"), (0.2, "TimedOut: slow was still importing its module after 0.2 s")],
)
def test_what_limits_a_process_task_counts_from_when_its_child_has_imported_its_module(
    begin: Begin, import_s: float, outcome: str
) -> None:
    """B009: each call imports anew, which has a limit of its own."""
    agent = begin(
        "if not sys.argv[1:] and 'process_child' in sys.argv[0]: time.sleep(1)\n"
        "@task(process=True, timeout=0.5, silence_timeout=0.5)\n"
        "def slow(): return 'done'\n"
        "@flow\ndef main():\n"
        "    try: return slow()\n"
        "    except Exception as error: return f'{type(error).__name__}: {error}'\n"
    )
    agent.run("pipeline:main", import_s=import_s)
    assert agent.value() == outcome


YIELDS = """
LOSS = {"name": "loss", "stream": True}

@task(provides=[LOSS, "weights"], process=True, retries=1)
def fit(place):
    tries = len(os.listdir(place))
    open(f"{place}/try-{tries}", "w").close()
    for number in range(3):
        yield {"loss": number + 10 * tries}
        while not os.path.exists(f"{place}/read-{number + 10 * tries}"):
            time.sleep(0.01)
        if tries == 0: os._exit(3)
    return os.getpid()

@task(provides=["count", LOSS2], process=True)
async def later(weights):
    yield {"loss2": 0.5}
    yield {"count": 1}

@task(requires=["place", LOSS], provides="seen")
def watch(place, loss):
    seen = []
    for number in loss:
        seen.append(number)
        open(f"{place}/read-{number}", "w").close()
    return seen

@task(provides="apart")
def apart(weights, loss, loss2, count): return [weights != os.getpid(), loss, loss2, count]

main = Flow("main", nodes=[fit, watch, later, apart], inputs=["place"], outputs=["seen", "apart"])
""".replace("LOSS2", '{"name": "loss2", "stream": True}')


def test_a_process_task_yields_streams_that_are_read_along_and_begun_again(
    begin: Begin, tmp_path: Path
) -> None:
    (tmp_path / "place").mkdir()
    agent = begin(YIELDS)
    agent.run("pipeline:main", {"place": str(tmp_path / "place")})
    seen = agent.value()["seen"]
    assert seen[1:] == [seen[0] + 1, seen[0] + 2], "of the attempt that ended well, from its first value"
    assert agent.value()["apart"] == [True, seen, [0.5], 1]
    values = [body["values"].get("loss") for body in agent.events("metric") if "loss" in body["values"]]
    assert values == [0, *seen]


def test_a_generator_in_a_process_of_its_own_emits_what_it_yields(begin: Begin) -> None:
    agent = begin(
        "@task(process=True)\ndef fit(wrong):\n    yield {'loss': 0.5}\n    if wrong: yield 3\n"
        "    return 'w'\n@flow\ndef main():\n    print(fit(False))\n    fit(True)\n"
    )
    agent.run("pipeline:main")
    words = "fit may yield only dicts of numbers, as in yield {'loss': 0.3}"
    assert (agent.texts()[0], agent.result()["error"]["message"]) == ("w", words)
    assert [body["values"] for body in agent.events("metric")] == [{"loss": 0.5}] * 2


def test_a_value_that_cannot_leave_its_process_fails_the_node_that_yields_it(begin: Begin) -> None:
    agent = begin(
        "@task(provides=[{'name': 'x', 'stream': True}], process=True)\n"
        "def fit(): yield {'x': threading.Lock()}\n"
        "main = Flow('main', nodes=[fit])\n"
    )
    agent.run("pipeline:main")
    assert "a value of the stream 'x' cannot leave its process: " in agent.result()["error"]["message"]


def test_the_child_of_an_engine_that_is_killed_dies_with_it(begin: Begin) -> None:
    agent = begin(WORK + "@flow\ndef main(): work('stuck')\n")
    agent.start("pipeline:main")
    child = eventually(
        lambda: next((int(t.split()[1]) for t in agent.texts() if t.startswith("pid")), None),
        what="the child",
    )
    agent.process.send_signal(9)
    eventually(
        lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie", what="its end"
    )


def test_a_durable_call_waits_until_its_outcome_is_acknowledged(begin: Begin) -> None:
    agent = begin(
        "@task(durable=True)\ndef pay(): return 1\n@flow\ndef main():\n    pay()\n    print('paid')\n"
    )
    agent.start("pipeline:main")
    while True:  # an agent that reads, and whose server records nothing yet
        frame = agent.receive()
        assert frame is not None
        if frame["type"] == "bell":
            agent.send("arm", read=agent.spool.stat().st_size, acked=0)
        if frame.get("ack"):
            break
    assert agent.events("checkpoint")[0]["kept"]
    assert agent.texts() == []
    agent.send("arm", read=agent.spool.stat().st_size, acked=agent.spool.stat().st_size)
    agent.until("done")
    assert agent.texts() == ["paid"]


def test_a_durable_call_can_be_cancelled_while_it_waits(begin: Begin) -> None:
    agent = begin("@task(durable=True)\ndef pay(): return 1\n@flow\ndef main(): pay()\n")
    agent.start("pipeline:main")
    while not (agent.receive() or {}).get("ack"):
        pass
    agent.send("cancel", reason="cancelled")
    while (agent.receive() or {"type": "gone"})["type"] not in ("done", "gone"):
        pass
    assert agent.result()["state"] == "cancelled"


def test_a_run_is_named_by_its_parameters(begin: Begin) -> None:
    agent = begin(
        "from datetime import date\n@flow(run_name='{city} of {day:%d %B}')\n"
        "def main(city, day: date): pass\n"
    )
    agent.run("pipeline:main", {"city": "Seattle", "day": "2024-01-31"})
    started = agent.events("started")
    assert [body.get("name") for body in started] == [None, "Seattle of 31 January"]
    assert started[0]["at"] == started[1]["at"]


def test_a_script_runs_process_tasks_too(tmp_path: Path) -> None:
    import subprocess
    import sys

    file = tmp_path / "pipeline.py"
    file.write_text(
        "from farhand import *\nimport os\nprint('imported')\n"
        "@task(process=True)\ndef work(x): return [x, os.getpid()]\n"
        "@task(process=True)\nasync def later(x): return x\n"
        "@flow\nasync def main(): return [work(1)] and [(await later(2)), await later.submit(3)]\n"
        "if __name__ == '__main__':\n    import asyncio, json\n    print(json.dumps(asyncio.run(main())))\n"
    )
    env = {**os.environ, "FARHAND_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout.splitlines()[-1]) == [2, 3], done.stderr
