"""Nodes that read along what others yield: here and on workers, whoever is killed in the middle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deployment import Deployment, deployed
from tests.harness.processes import send
from tests.harness.waiting import eventually

Document = dict[str, Any]

LOSS = {"name": "loss", "type": "int", "stream": True}
READ = {"name": "loss", "stream": True}

YIELDS = """
import os, time

def process(place):
    with open(f'{place}/fit', 'a') as file:
        file.write(f'{os.getpid()}\\n')
    for number in range(3):
        yield {'loss': number}
        while not (os.path.exists(f'{place}/read-{number}') or os.path.exists(f'{place}/go')):
            time.sleep(0.01)
    return 'w'
"""
"""Yields the next value once the last one was read, or all that are left once it may go on."""

READS = """
import os

def process(place, loss):
    seen = []
    for number in loss:
        seen.append(number)
        with open(f'{place}/watch', 'a') as file:
            file.write(f'{os.getpid()} {number}\\n')
        if not os.path.exists(f'{place}/hold'):
            open(f'{place}/read-{number}', 'w').close()
    return {'seen': seen}
"""


TASKS = """
import os, time

from farhand import Flow, flow, task

LOSS = {"name": "loss", "stream": True}

@task(provides=[LOSS, "weights"], device="one")
async def fit(count):
    for each in range(count):
        yield {"loss": each}
    yield {"weights": "w"}

@task(requires=[LOSS], provides=[{"name": "double", "stream": True}], device="two", retries=1)
def double(loss):
    for each in loss:
        yield {"double": each * 2}

@task(requires=[{"name": "double", "stream": True}, "weights"], provides="total")
def total(double, weights):
    return weights + str(sum(double))

chain = Flow("chain", nodes=[total, double, fit], inputs=["count"], outputs=["total", "double"])

@task(device="one", gpus=1)
def on_the_card(number):
    return number

@task(provides=[LOSS])
def calls(begun):
    yield {"loss": 1}
    while not os.path.exists(begun):
        time.sleep(0.01)
    yield {"loss": on_the_card(2)}

@task(requires=["begun", LOSS], provides="sum", device="one", gpus=1)
def reads(begun, loss):
    open(begun, "w").close()
    return sum(loss)

one_card = Flow("one-card", nodes=[calls, reads], inputs=["begun"], outputs=["sum"])

@flow
def around(count: int):
    return [chain(count=count), chain(count=count)]
"""
"""A project's tasks that read along, in a flow, and that flow in another one."""


def document(fit: Document | None = None, watch: Document | None = None) -> Document:
    """A node that yields, one that reads along, and one that takes the list."""
    return {
        "inputs": [{"name": "place", "type": "str"}],
        "outputs": ["seen", "weights", "losses"],
        "nodes": [
            {
                "id": "fit",
                "type": "python",
                "source": YIELDS,
                "requires": ["place"],
                "provides": [LOSS, "weights"],
                **(fit or {}),
            },
            {
                "id": "watch",
                "type": "python",
                "source": READS,
                "requires": ["place", READ],
                "provides": ["seen"],
                **(watch or {}),
            },
            {
                "id": "list",
                "type": "python",
                "source": "def process(loss): return {'losses': loss}",
                "requires": ["loss"],
                "provides": ["losses"],
            },
        ],
    }


WHOLE = {"seen": [0, 1, 2], "weights": "w", "losses": [0, 1, 2]}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server and two workers, with a label each."""
    directory = tmp_path_factory.mktemp("streams")
    (directory / "flows").mkdir()
    (directory / "flows" / "tasks.py").write_text(TASKS)
    with deployed(directory, project=directory / "flows") as deployment:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_GPUS_ON_NODE", "1")
            patch.setenv("CUDA_VISIBLE_DEVICES", "GPU-of-the-test")
            deployment.worker("one", "one")
        deployment.worker("two", "two")
        yield deployment


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server with one slot, and nobody else."""
    directory = tmp_path_factory.mktemp("narrow")
    (directory / "flows").mkdir()
    with deployed(directory, project=directory / "flows", parallel=1) as deployment:
        yield deployment


class Story:
    """One run, and what its nodes have left behind."""

    def __init__(self, here: Deployment, place: Path, **nodes: Document) -> None:
        self.here = here
        self.place = place
        here.put("/flows/along", document(**nodes))
        self.id = ""

    def start(self, *, hold: bool = False) -> Story:
        """Start it; with ``hold`` what is read is not said, so that one value is all there is for now."""
        if hold:
            (self.place / "hold").touch()
        self.id = self.here.start_run("along", place=str(self.place))
        return self

    def fits(self) -> list[int]:
        """The process of each attempt that yields."""
        return [int(line) for line in self._lines("fit")]

    def read(self) -> list[tuple[int, int]]:
        """The process and value of all that was read."""
        return [(int(pid), int(value)) for pid, value in map(str.split, self._lines("watch"))]

    def readers(self) -> list[int]:
        """The process of each attempt that reads."""
        return list(dict.fromkeys(pid for pid, _ in self.read()))

    def values_of(self, reader: int) -> list[int]:
        """What that one has read."""
        return [value for pid, value in self.read() if pid == reader]

    def let_go(self) -> None:
        """Let it go on to its end."""
        (self.place / "hold").unlink(missing_ok=True)
        (self.place / "go").touch()

    def finish(self, within_s: float = 60) -> Document:
        """Its end, which is a good one."""
        run = self.here.wait_for_run(self.id, within_s=within_s)
        assert (run["state"], run["result"]) == ("completed", WHOLE), run["message"]
        return run

    def tasks(self) -> list[tuple[str, str]]:
        """The calls of it, each with its state."""
        return [(task["name"], task["state"]) for task in self.here.items(f"/runs/{self.id}/tasks")]

    def _lines(self, name: str) -> list[str]:
        file = self.place / name
        return file.read_text().splitlines() if file.exists() else []


ON_ONE, ON_TWO = {"device": "one"}, {"device": "two"}


@pytest.mark.parametrize(
    ("fit", "watch"), [({}, {}), (ON_ONE, {}), ({}, ON_ONE), (ON_ONE, ON_TWO), (ON_ONE, ON_ONE)]
)
def test_a_node_reads_along_wherever_the_two_run(
    here: Deployment, tmp_path: Path, fit: Document, watch: Document
) -> None:
    story = Story(here, tmp_path, fit=fit, watch=watch).start()
    story.finish()
    assert sorted(story.tasks()) == [("fit", "completed"), ("list", "completed"), ("watch", "completed")]


def begun_along(here: Deployment, place: Path, **nodes: Document) -> Story:
    """A run whose reader has read the first value, and waits for the second."""
    story = Story(here, place, **nodes).start(hold=True)
    eventually(story.read, what="the first value is read")
    return story


@pytest.mark.fault("4.31")
@pytest.mark.parametrize(("fit", "watch"), [(ON_ONE, ON_TWO), ({}, ON_ONE), (ON_ONE, {})])
def test_a_reader_that_is_killed_reads_from_the_beginning_and_the_other_goes_on(
    here: Deployment, tmp_path: Path, fit: Document, watch: Document
) -> None:
    story = begun_along(here, tmp_path, fit=fit, watch=watch)
    send(story.readers()[0], signal.SIGKILL)
    eventually(lambda: len(story.readers()) == 2, what="the reader is begun again")
    story.let_go()
    story.finish()
    assert len(story.fits()) == 1
    assert [story.values_of(reader) for reader in story.readers()] == [[0], [0, 1, 2]]
    assert sorted(story.tasks()) == [("fit", "completed"), ("list", "completed"), ("watch", "completed")]


@pytest.mark.fault("4.32")
@pytest.mark.parametrize(("fit", "watch"), [(ON_ONE, ON_TWO), (ON_ONE, {}), ({}, ON_ONE), ({}, {})])
def test_a_node_that_is_killed_as_it_yields_is_run_again_and_its_reader_with_it(
    here: Deployment, tmp_path: Path, fit: Document, watch: Document
) -> None:
    story = begun_along(here, tmp_path, fit=fit, watch=watch)
    send(story.fits()[0], signal.SIGKILL)
    eventually(lambda: len(story.fits()) == 2, what="the node that yields is run again")
    eventually(lambda: [value for _, value in story.read()] == [0, 0], what="its reader is begun again")
    story.let_go()
    story.finish()
    assert len(story.fits()) == 2
    assert [value for _, value in story.read()] == [0, 0, 1, 2]
    graph = here.get(f"/runs/{story.id}/graph")
    assert {each["state"] for each in graph["shown"] if each["kind"] == "python"} == {"completed"}


@pytest.mark.fault("4.32")
def test_a_flow_that_is_killed_finds_the_reader_that_was_begun_again(
    here: Deployment, tmp_path: Path
) -> None:
    story = begun_along(here, tmp_path, fit=ON_ONE, watch=ON_TWO)
    send(story.fits()[0], signal.SIGKILL)
    eventually(lambda: [value for _, value in story.read()] == [0, 0], what="its reader is begun again")
    send(here.attempts(story.id)[-1]["pid"], signal.SIGKILL)
    eventually(lambda: len(here.attempts(story.id)) == 2, what="the flow is run again")
    story.let_go()
    story.finish()
    assert [value for _, value in story.read()] == [0, 0, 1, 2]
    assert len(story.fits()) == 2


@pytest.mark.fault("4.33")
@pytest.mark.parametrize("name", ["one", "two"])
def test_a_worker_that_is_killed_in_the_middle_of_a_stream_costs_a_repetition(
    here: Deployment, tmp_path: Path, name: str
) -> None:
    story = begun_along(here, tmp_path, fit=ON_ONE, watch=ON_TWO)
    worker = here.workers[name]
    worker.kill()
    worker.start()
    eventually(lambda: [value for _, value in story.read()] == [0, 0], 60, "the first value is read again")
    story.let_go()
    story.finish()
    assert len(story.fits()) == (2 if name == "one" else 1)
    assert [value for _, value in story.read()] == [0, 0, 1, 2]


@pytest.mark.fault("4.34")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ends_in_the_middle_of_a_stream_costs_nothing(
    here: Deployment, tmp_path: Path, number: int
) -> None:
    story = begun_along(here, tmp_path, fit=ON_ONE, watch=ON_TWO)
    here.server.send(number)
    here.server.wait()
    story.let_go()
    here.restart()
    story.finish()
    assert (len(story.fits()), len(story.readers())) == (1, 1)
    assert story.values_of(story.readers()[0]) == [0, 1, 2]


@pytest.mark.parametrize("watch", [{}, {"runs_on": "server"}])
def test_one_slot_is_enough_also_when_the_node_that_yields_is_killed(
    narrow: Deployment, tmp_path: Path, watch: Document
) -> None:
    """The one that yields comes first, and whoever reads it begins when it has ended."""
    story = Story(narrow, tmp_path, fit={"runs_on": "server"}, watch=watch).start()
    send(eventually(story.fits, what="the first value is yielded")[0], signal.SIGKILL)
    story.let_go()
    story.finish()
    assert len(story.fits()) == 2


def test_a_reader_whose_stream_breaks_for_good_is_skipped(here: Deployment, tmp_path: Path) -> None:
    source = (
        "import os, time\n"
        "def process(place):\n"
        "    yield {'loss': 0}\n"
        "    while not os.path.exists(f'{place}/read-0'):\n        time.sleep(0.01)\n"
        "    raise ValueError('no luck')\n"
    )
    story = Story(here, tmp_path, fit={**ON_ONE, "source": source}, watch=ON_TWO).start()
    run = here.wait_for_run(story.id)
    assert (run["state"], run["message"]) == ("failed", "NodeFailed: node 'fit' failed: ValueError: no luck")
    graph = here.get(f"/runs/{story.id}/graph")
    said = {
        each["id"]: (each["state"], each["message"]) for each in graph["shown"] if each["kind"] == "python"
    }
    assert said["watch"] == ("skipped", "NodeSkipped: not run, since node 'fit' failed")
    broken = [task["error"] for task in here.items(f"/runs/{story.id}/tasks") if task["state"] == "failed"]
    assert "the stream 'loss' broke off: ValueError: no luck" in [error["message"] for error in broken]
    assert any("watch begins again" in line for line in here.log_lines(story.id))


def test_a_run_that_failed_in_the_middle_of_a_stream_is_retried_whole(
    here: Deployment, tmp_path: Path
) -> None:
    source = YIELDS.replace(
        "    return 'w'", "    if not os.path.exists(f'{place}/well'): 1 / 0\n    return 'w'"
    )
    (tmp_path / "go").touch()
    story = Story(here, tmp_path, fit={**ON_ONE, "source": source}, watch=ON_TWO).start()
    assert here.wait_for_run(story.id)["state"] == "failed"
    (tmp_path / "well").touch()
    story.id = here.post(f"/runs/{story.id}/retry")["id"]
    story.finish()


@pytest.mark.parametrize("watch", [{}, ON_TWO])
def test_a_run_is_cancelled_while_its_reader_waits(here: Deployment, tmp_path: Path, watch: Document) -> None:
    story = begun_along(here, tmp_path, fit=ON_ONE, watch=watch)
    here.post(f"/runs/{story.id}/cancel")
    here.wait_for_run(story.id, "cancelled")
    for worker in ("server", "one", "two"):
        eventually(
            lambda worker=worker: here.get(f"/workers/{worker}")["holds"] == [], what="nobody holds it"
        )
    assert sorted(story.tasks()) == [("fit", "cancelled"), ("watch", "cancelled")]
    assert not [line for line in here.log_lines(story.id) if "the engine ended" in line]  # nor was one killed


@pytest.mark.parametrize("on", [{}, ON_ONE])
def test_waiting_for_values_is_no_silence(here: Deployment, on: Document) -> None:
    yields = "import time\ndef process():\n    yield {'x': 1}\n    time.sleep(1)\n    yield {'x': 2}\n"
    reads = "def process(x): return sum(x)"
    stream = {"name": "x", "stream": True}
    nodes = [
        {"id": "a", "type": "python", "source": yields, "provides": [stream]},
        {"id": "b", "type": "python", "source": reads, "requires": [stream], "provides": ["y"], **on},
    ]
    here.put("/flows/quiet", {"nodes": [nodes[0], {**nodes[1], "timeout": 0.4}], "outputs": ["y"]})
    run = here.wait_for_run(here.start_run("quiet"))
    assert run["result"] == {"y": 3}, run["message"]


def test_a_reader_that_waits_gives_its_slot_back(here: Deployment, tmp_path: Path) -> None:
    here.worker("slim", "slim", parallel=1)
    on_slim = {"device": "slim"}
    story = begun_along(here, tmp_path, fit=ON_ONE, watch=on_slim)
    other = {"id": "a", "type": "python", "source": "def process(): return 1", "provides": ["x"], **on_slim}
    here.put("/flows/other", {"nodes": [other], "outputs": ["x"]})
    assert here.wait_for_run(here.start_run("other"))["result"] == {"x": 1}
    story.let_go()
    story.finish()


def test_tasks_of_a_project_read_along_as_well(here: Deployment) -> None:
    result = {"total": "w20", "double": [0, 2, 4, 6, 8]}
    assert here.wait_for_run(here.start_run("chain", count=5))["result"] == result
    assert here.wait_for_run(here.start_run("around", count=5))["result"] == [result, result]


def test_many_values_of_any_kind_come_in_their_order(here: Deployment) -> None:
    yields = (
        "def process():\n"
        "    for number in range(3000):\n"
        "        yield {'pair': (number, 'x' * (100_000 if number == 7 else 20))}\n"
    )
    reads = (
        "async def process(pair):\n"
        "    count = 0\n"
        "    async for number, text in pair:\n"
        "        assert number == count and len(text) in (20, 100_000)\n"
        "        count += 1\n"
        "    return count\n"
    )
    pair = {"name": "pair", "stream": True}
    nodes = [
        {"id": "a", "type": "python", "source": yields, "provides": [pair], **ON_ONE},
        {
            "id": "b",
            "type": "python",
            "source": reads,
            "requires": [pair],
            "provides": ["count"],
            **ON_TWO,
        },
    ]
    here.put("/flows/many", {"nodes": nodes, "outputs": ["count"]})
    run = here.wait_for_run(here.start_run("many"), within_s=60)
    assert run["result"] == {"count": 3000}, run["message"]


def test_a_call_that_needs_the_card_of_the_node_that_reads_its_caller_fails_and_says_so(
    here: Deployment, tmp_path: Path
) -> None:
    eventually(
        lambda: "one-card" in [flow["name"] for flow in here.get("/flows")["items"]], 60, "it is offered"
    )
    run = here.wait_for_run(here.start_run("one-card", begun=str(tmp_path / "begun")), "failed")
    assert "of which 1 are held by reads" in run["error"]["message"]
    assert "which waits for a stream that goes on only after this very call" in run["error"]["message"]
