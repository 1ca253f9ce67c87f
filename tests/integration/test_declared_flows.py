# ruff: noqa: E501 - a row of a table is a line
"""Flows that are put as documents: checked, kept in versions, and run on the server and on a worker."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.docs.pages import examples, page
from tests.harness.deployment import Deployment, deployed
from tests.harness.processes import send
from tests.harness.waiting import eventually

Document = dict[str, Any]

TRAIN: Document = {
    "description": "Trains where there is a gpu.",
    "inputs": [
        {"name": "lr", "type": "float", "default": 0.5},
        {"name": "steps", "type": "int", "default": 3},
    ],
    "outputs": ["score"],
    "nodes": [
        {
            "id": "prepare",
            "type": "python",
            "source": "def process(steps):\n    print('preparing')\n    return list(range(steps))\n",
            "requires": ["steps"],
            "provides": [{"name": "dataset", "type": "list"}],
        },
        {
            "id": "train",
            "type": "python",
            "source": (
                "import farhand\n\n"
                "class Weights:\n    def __init__(self, total):\n        self.total = total\n\n"
                "def process(dataset, lr):\n"
                "    farhand.get_logger().info('training')\n"
                "    for step in dataset:\n        yield {'loss': lr * step}\n"
                "    return Weights(sum(dataset))\n"
            ),
            "requires": ["dataset", "lr"],
            "provides": [{"name": "loss", "type": "float", "stream": True}, "weights"],
            "device": "gpu",
            "timeout": 60,
        },
        {
            "id": "evaluate",
            "type": "python",
            "source": "def evaluate(weights, loss):\n    return {'score': weights.total + loss[-1]}\n",
            "requires": ["weights", "loss"],
            "provides": ["score"],
        },
    ],
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server with the flow of the page, and a worker called box that has a gpu."""
    directory = tmp_path_factory.mktemp("declared")
    project = directory / "flows"
    project.mkdir()
    (project / "here.py").write_text(examples("declared.md")[0])
    with deployed(directory, project=project) as deployment:
        deployment.worker("box", "gpu")
        yield deployment


def node(id: str, source: str, requires: list[str] | None = None, **more: Any) -> Document:
    """A Python node."""
    return {"id": id, "type": "python", "source": source, "requires": requires or [], **more}


def run_of(
    here: Deployment, name: str, *nodes: Document, outputs: list[str] | None = None, **params: Any
) -> Document:
    """Put a flow of these nodes and run it to its end."""
    here.put(f"/flows/{name}", {"nodes": list(nodes), "outputs": outputs or []})
    return here.wait_for_run(here.start_run(name, **params))


def tasks_of(here: Deployment, run: Document) -> dict[str, Document]:
    """The task runs of a run by name."""
    return {task["name"]: task for task in here.items(f"/runs/{run['id']}/tasks")}


def test_a_document_runs_here_and_on_a_worker_that_was_given_nothing(here: Deployment) -> None:
    kept = here.put("/flows/train", TRAIN)
    assert kept["number"] == 1
    run = here.wait_for_run(here.start_run("train", steps=4))
    assert run["state"] == "completed", run["message"]
    assert run["result"] == {"score": 6 + 0.5 * 3}
    tasks = tasks_of(here, run)
    assert tasks["train"]["worker"] == "box"
    assert {"preparing", "training"} <= set(here.log_lines(run["id"]))
    series = {each["name"]: each for each in here.items(f"/runs/{run['id']}/metrics/summary")}
    assert series["loss"]["count"] == 4


def test_an_async_entry_is_awaited_here_and_on_a_worker(here: Deployment) -> None:
    source = (
        "import asyncio\n\n"
        "async def process(x):\n"
        "    print('awaiting')\n"
        "    return sum(await asyncio.gather(*[asyncio.sleep(0, result=x) for _ in range(3)]))\n"
    )
    first = node("first", "async def only():\n    return 1\n", provides=["x"])
    there = node("there", source, ["x"], provides=["y"], device="gpu")
    yields = (
        "import asyncio\n\n"
        "async def process(x):\n"
        "    for each in range(3):\n"
        "        await asyncio.sleep(0)\n"
        "        yield {'loss': each + x}\n"
        "    yield {'last': each}\n"
    )
    streamed = {"name": "loss", "type": "float", "stream": True}
    along = node("along", yields, ["x"], provides=[streamed, "last"], device="gpu")
    run = run_of(here, "awaited", first, there, along, outputs=["x", "y", "loss", "last"])
    assert run["result"] == {"x": 1, "y": 3, "loss": [1.0, 2.0, 3.0], "last": 2}, run["message"]
    assert {tasks_of(here, run)[name]["worker"] for name in ("there", "along")} == {"box"}
    assert "awaiting" in here.log_lines(run["id"])


def test_a_failed_node_stops_no_sibling_and_those_after_it_are_skipped(here: Deployment) -> None:
    run = run_of(
        here,
        "partly",
        node("bad", "def process():\n    raise ValueError('no luck')\n", provides=["x"]),
        node("good", "def process():\n    return 1\n", provides=["y"]),
        node("after", "def process(x):\n    return x\n", ["x"], provides=["z"]),
        node("last", "def process(z, y):\n    return z\n", ["z", "y"], provides=["w"]),
        outputs=["w"],
    )
    assert run["state"] == "failed"
    assert run["message"] == "NodeFailed: node 'bad' failed: ValueError: no luck"
    tasks = tasks_of(here, run)
    assert {name: task["state"] for name, task in tasks.items()} == {
        "bad": "failed",
        "good": "completed",
        "after": "skipped",
        "last": "skipped",
    }
    assert tasks["last"]["error"]["message"] == "not run, since node 'bad' failed"
    graph = here.get(f"/runs/{run['id']}/graph")
    assert graph["declared"]
    assert {each["id"]: each["state"] for each in graph["shown"]} == {
        name: task["state"] for name, task in tasks.items()
    }
    assert [(each["source"], each["target"], each["names"]) for each in graph["edges"]] == [
        ("bad", "after", ["x"]),
        ("after", "last", ["z"]),
        ("good", "last", ["y"]),
    ]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_page_about_declared_flows_does_what_it_says(here: Deployment, tmp_path: Path) -> None:
    text = page("declared.md")
    document, service = re.findall(r"^```json\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (lines,) = re.findall(r"^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "train.json").write_text(document)
    token = (here.home / "admin-token").read_text().strip()
    done = subprocess.run(
        ["bash", "-euc", lines.replace("flows/train", "flows/curled")],
        cwd=tmp_path,
        env={**os.environ, "FARHAND_URL": here.url, "FARHAND_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (started,) = here.items("/runs", flow="curled")
    run = here.wait_for_run(started["id"])
    assert run["state"] == "completed", run["message"]
    assert run["result"]["score"] > 0.9
    assert run["result"]["best"] == pytest.approx(0, abs=1)
    assert tasks_of(here, run)["train"]["placed"]
    assert json.loads(document)["nodes"][0]["id"] in done.stdout
    here.put("/flows/hosting", {"nodes": [json.loads(service)]})
    assert here.get("/services/llm")["flows"] == ["hosting"]
    here.client.delete("/flows/hosting").raise_for_status()


def test_a_mistake_keeps_nothing_and_is_named_in_the_answer(here: Deployment) -> None:
    wrong = {"nodes": [node("a", "def process(x): return x", ["x"])]}
    answer = here.client.put("/flows/wrong", json=wrong)
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid_document"
    assert answer.json()["details"]["mistakes"] == [
        {"node": "a", "message": "node 'a': requires 'x', which is no input and no node provides"}
    ]
    assert here.client.get("/flows/wrong").status_code == 404


def test_a_documents_schedules_start_it_until_they_are_put_otherwise_or_deleted(here: Deployment) -> None:
    timed: Document = {
        "inputs": [{"name": "n", "type": "int", "default": 1}],
        "outputs": ["x"],
        "nodes": [node("a", "def process(n): return n", ["n"], provides=["x"])],
        "schedules": [{"every": 1, "inputs": {"n": 7}}, {"cron": "0 6 * * *", "timezone": "Europe/Berlin"}],
    }

    def shown() -> list[Document]:
        return [each for each in here.items("/schedules") if each["flow"] == "timed"]

    here.put("/flows/timed", timed)
    assert sorted(each["when"] for each in shown()) == ["0 6 * * * in Europe/Berlin", "every 1 s"]
    started = eventually(lambda: here.items("/runs", flow="timed"), what="a schedule has started a run")
    assert here.wait_for_run(started[-1]["id"])["result"] == {"x": 7}
    wrong = [{"cron": "61 6 * * *"}, {"cron": "0 6 * * *", "timezone": "Mars/North"}, {"cron": "0 0 30 2 *"}]
    answer = here.client.put("/flows/timed", json={**timed, "schedules": wrong, "outputs": ["y"]})
    assert answer.status_code == 422
    assert [each["message"] for each in answer.json()["details"]["mistakes"]] == [
        "outputs: 'y' is no input and no node provides it",
        "schedules: in place 1: cron '61 6 * * *' cannot be read: Bad minute",
        "schedules: in place 2: timezone 'Mars/North' is unknown on this machine; check its spelling, or install the package tzdata",
        "schedules: in place 3: cron '0 0 30 2 *' cannot be read: Bad day-of-month",
    ]
    here.put("/flows/timed", {**timed, "schedules": timed["schedules"][1:]})
    assert [(each["when"], each["state"]) for each in shown()] == [
        ("0 6 * * * in Europe/Berlin", "active"),
        ("every 1 s", "gone"),
    ]
    assert here.client.delete("/flows/timed", params={"force": True}).status_code == 202
    assert shown() == []


def test_versions_are_kept_and_a_change_may_name_what_it_is_based_on(here: Deployment) -> None:
    first = {"nodes": [node("a", "def process(): return 1", provides=["x"])], "outputs": ["x"]}
    second = {"nodes": [node("a", "def process(): return 2", provides=["x"])], "outputs": ["x"]}
    one = here.put("/flows/kept", first)
    assert here.put("/flows/kept", first) == one
    answer = here.client.put("/flows/kept", json=second, headers={"If-Match": '"other"'})
    assert (answer.status_code, answer.json()["code"]) == (412, "changed")
    assert here.client.put("/flows/kept", json=second, headers={"If-None-Match": "*"}).status_code == 412
    shown = here.client.get("/flows/kept")
    assert shown.headers["etag"] == f'"{one["etag"]}"'
    assert shown.json()["document"] == first
    two = here.client.put("/flows/kept", json=second, headers={"If-Match": shown.headers["etag"]})
    assert two.json()["number"] == 2
    assert [version["number"] for version in here.items("/flows/kept/versions")] == [2, 1]
    assert here.wait_for_run(here.start_run("kept"))["result"] == {"x": 2}


def test_a_flow_is_deleted_with_its_runs_and_not_while_one_goes_on_unless_forced(here: Deployment) -> None:
    slow = {"nodes": [node("a", "import time\ndef process():\n    print('on')\n    time.sleep(600)\n")]}
    here.put("/flows/slow", slow)
    run = here.start_run("slow")
    eventually(lambda: "on" in here.log_lines(run), what="the node runs")
    answer = here.client.delete("/flows/slow")
    assert answer.status_code == 409
    assert "have not ended" in answer.json()["detail"]
    assert here.client.delete("/flows/slow", params={"force": True}).status_code == 202
    assert here.client.get("/flows/slow").status_code == 404
    assert not here.items("/runs", flow="slow")
    eventually(lambda: here.get("/workers/server")["holds"] == [], what="its engine is free")
    deletions = here.items("/audit", action="delete_flow")
    assert [e["subject"] for e in deletions if e["status"] == 202].count("slow") == 1


@pytest.mark.parametrize(
    ("source", "asks", "said"),
    [
        ("import no_such_module\ndef process(): pass", {}, "node 'a' cannot load: ModuleNotFoundError: No module"),
        ("import no_such_module\ndef process(): pass", {"device": "gpu"}, "node 'a' cannot load: ModuleNotFoundError"),
        ("def process(:", {"device": "gpu"}, "node 'a' cannot load: SyntaxError"),
        ("1 / 0\ndef process(): pass", {"device": "gpu"}, "node 'a' cannot load: ZeroDivisionError"),
        ("def process(): return {}", {}, "node 'a' did not deliver 'x'"),
        ("def process(): return {'x': 1, 'y': 2, 'z': 3}", {"device": "gpu"}, "node 'a' delivers 'z', which it does not"),
        ("def process(): return 3", {}, "node 'a' returned int, and has to return a dict of 'x', 'y'"),
        ("def process(): return {'x': 'no', 'y': 2}", {}, "node 'a' delivers 'x' as something else than int"),
        ("import time\ndef process(): time.sleep(60)", {"timeout": 0.3}, "'a' reported nothing for 0.3 s"),
        ("import time\ndef process(): time.sleep(60)", {"duration_timeout": 0.3}, "'a' took longer than its duration_timeout of 0.3 s"),
        ("import time\ndef process(): time.sleep(60)", {"timeout": 0.3, "device": "gpu"}, "'a' reported nothing for 0.3 s"),
        ("import asyncio\nasync def process(): await asyncio.sleep(60)", {"duration_timeout": 0.3}, "'a' took longer than its duration_timeout of 0.3 s"),
        ("import asyncio\nasync def process(): await asyncio.sleep(60)", {"timeout": 0.3, "device": "gpu"}, "'a' reported nothing for 0.3 s"),
        ("async def given(): return 1\nprocess = given", {}, "write async def process(…) as a statement of its own"),
    ],
)  # fmt: skip
def test_a_node_that_does_not_load_or_deliver_fails_its_run_with_that_sentence(
    here: Deployment, source: str, asks: Document, said: str
) -> None:
    provides = [{"name": "x", "type": "int"}, "y"]
    run = run_of(here, "odd", node("a", source, provides=provides, **asks))
    assert run["state"] == "failed"
    assert said in run["message"]
    wanted = "silence" if "reported" in said else "timeout" if "took longer" in said else None
    assert wanted is None or run["reason"] == wanted


def test_independent_nodes_run_at_once(here: Deployment, tmp_path: Path) -> None:
    meet = (
        "import os, time\n"
        "def process(place, other):\n"
        "    open(place, 'w').close()\n"
        "    while not os.path.exists(other):\n        time.sleep(0.01)\n"
    )
    left = "def a(place): pass\n" + meet
    here.put(
        "/flows/pair",
        {
            "inputs": ["one", "two"],
            "nodes": [
                node("left", meet.replace("place", "one").replace("other", "two"), ["one", "two"]),
                node("right", left.replace("place", "two").replace("other", "one"), ["one", "two"]),
            ],
        },
    )
    run = here.start_run("pair", one=str(tmp_path / "1"), two=str(tmp_path / "2"))
    assert here.wait_for_run(run)["state"] == "completed"


def test_a_flow_of_a_projects_tasks_is_a_declared_flow_too(here: Deployment) -> None:
    run = here.wait_for_run(here.start_run("train-here", count=3, lr=1))
    assert run["result"] == {"score": 5.0}
    (version,) = here.items("/flows/train-here/versions")
    assert version["created_by"] == "project default"
    graph = here.get(f"/runs/{run['id']}/graph")
    assert {each["id"]: each["state"] for each in graph["shown"] if each["kind"] == "task"} == {
        "prepare": "completed",
        "fit": "completed",
        "evaluate": "completed",
    }
    answer = here.client.put("/flows/train-here", json=TRAIN)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert here.client.delete("/flows/train-here", params={"force": True}).status_code == 409
    refused = here.client.delete("/flows/train-here", headers={"If-Match": f'"{version["etag"]}"'})
    assert (refused.status_code, refused.json()["code"]) == (400, "usage")


def test_a_run_keeps_its_version_and_a_killed_engine_repeats_no_finished_node(
    here: Deployment, tmp_path: Path
) -> None:
    gate, witness = tmp_path / "gate", tmp_path / "witness"
    mark = "def process(place):\n    open(place, 'a').write('one ')\n    return 1\n"
    wait = (
        "import os, time\n"
        "def process(x, gate):\n"
        "    print('engine', os.getpid())\n"
        "    while not os.path.exists(gate):\n        time.sleep(0.01)\n"
        "    return x\n"
    )
    nodes = [
        node("first", mark, ["place"], provides=["x"]),
        node("second", wait, ["x", "gate"], provides=["y"]),
    ]
    document = {"inputs": ["place", "gate"], "outputs": ["y"], "nodes": nodes}
    here.put("/flows/lasting", document)
    run = here.start_run("lasting", place=str(witness), gate=str(gate))

    def engines() -> list[int]:
        return [int(line.split()[1]) for line in here.log_lines(run) if line.startswith("engine ")]

    send(eventually(engines, what="the second node runs")[0], signal.SIGKILL)
    here.put(
        "/flows/lasting",
        {"nodes": [node("other", "def process(): return 2", provides=["y"])], "outputs": ["y"]},
    )
    eventually(lambda: len(engines()) == 2, what="the second node runs again")
    gate.touch()
    assert here.wait_for_run(run, "completed")["result"] == {"y": 1}
    assert witness.read_text() == "one "
    assert here.wait_for_run(here.start_run("lasting"))["result"] == {"y": 2}


@pytest.mark.fault("4.30")
def test_a_save_is_held_up_by_no_frozen_worker_and_holds_up_nothing_else(here: Deployment) -> None:
    worker = here.workers["box"]
    long = (
        "\n".join(f"def _f{i}(x):\n    return x + {i}" for i in range(7000)) + "\ndef process(): return 1\n"
    )
    slow = {"nodes": [node(f"n{i}", long) for i in range(3)]}
    worker.send(signal.SIGSTOP)
    try:
        with (
            ThreadPoolExecutor() as pool,
            frozen_reader(here, pool.submit(here.put, "/flows/slow-to-read", slow)),
        ):
            here.put("/flows/train", TRAIN)
            beside = {"nodes": [node("a", "def process(): return 1", provides=["x"])], "outputs": ["x"]}
            here.put("/flows/beside", beside)
            run = here.start_run("beside")
        assert here.get("/flows/slow-to-read")["version"] == 1
        assert here.wait_for_run(run)["result"] == {"x": 1}
    finally:
        worker.send(signal.SIGCONT)
    here.wait_for_worker("box", "online", within_s=40)


@contextmanager
def frozen_reader(here: Deployment, save: Future[Document]) -> Generator[None]:
    """While the process that reads the document of a save is stopped, which so cannot be answered."""

    def reader() -> int | None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == here.server.pid and b"farhand.sdk.saving" in path.read_bytes():
                    return int(path.parent.name)
        return None

    pid = eventually(reader, what="a process reads the document")
    assert pid is not None
    send(pid, signal.SIGSTOP)
    try:
        yield
        assert not save.done()
    finally:
        send(pid, signal.SIGCONT)
    assert save.result(timeout=60)["number"] == 1


@pytest.mark.fault("4.21")
def test_an_odd_name_is_refused(here: Deployment) -> None:
    for name in ("a'b", "$(touch x)", "two\nlines", "x" * 300, "UPPER", "server"):
        assert here.client.put(f"/flows/{quote(name)}", json=TRAIN).status_code == 400


def test_a_file_goes_from_a_node_on_a_worker_to_one_here(here: Deployment) -> None:
    save = "from farhand import save_artifact\ndef process():\n    return save_artifact(b'weights', name='w.bin')\n"
    load = "from farhand import load_artifact\ndef process(w):\n    return load_artifact(w).read_bytes().decode()\n"
    run = run_of(
        here,
        "files",
        node("save", save, provides=[{"name": "w", "type": "artifact"}], device="gpu"),
        node("load", load, ["w"], provides=[{"name": "text", "type": "str"}]),
        outputs=["text"],
    )
    assert run["result"] == {"text": "weights"}, run["message"]


def test_a_broken_farhand_that_a_workers_python_has_takes_nothing_from_a_node(
    here: Deployment, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "own")], check=True)
    (installed,) = (tmp_path / "own").glob("lib/python*/site-packages")
    (installed / "farhand").mkdir()
    (installed / "farhand" / "__init__.py").write_text("raise ImportError('the one that is installed')\n")
    (installed / "only_there.py").write_text("")
    source = (
        "import only_there\n"
        "from farhand import emit, get_logger, load_artifact, save_artifact\n\n"
        "def process():\n"
        "    get_logger().info('inside')\n"
        "    emit(loss=0.5)\n"
        "    return load_artifact(save_artifact(b'kept', name='k')).read_text()\n"
    )
    here.worker("own", "own", options=["--python", str(tmp_path / "own" / "bin" / "python")])
    run = run_of(here, "shadowed", node("n", source, provides=["x"], device="own"), outputs=["x"])
    assert run["result"] == {"x": "kept"}, run["message"]
    assert "inside" in here.log_lines(run["id"])
    assert [each["name"] for each in here.items(f"/runs/{run['id']}/metrics/summary")] == ["loss"]
