"""Declared flows in Python: tasks as nodes, run as a script, with what they deliver by name."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from farhand import Flow, Service, task
from farhand.errors import InvalidDocument, NodeFailed, NotDelivered, NotSupported, Usage
from farhand.sdk.assembling import described
from farhand.sdk.inspection import described as inspected


@task(provides=[{"name": "dataset", "type": "list"}])
def prepare(count: int) -> list[int]:
    return list(range(count))


@task(provides=[{"name": "loss", "type": "float", "stream": True}, "weights"])
def fit(dataset: list[int], lr: float = 0.5) -> Any:
    for each in dataset:
        yield {"loss": lr * each}
    return sum(dataset)


@task(requires=["weights", "loss"], provides="score")
def evaluate(weights: int, loss: list[float]) -> float:
    return weights + loss[-1]


train = Flow(
    "train",
    nodes=[evaluate, fit, prepare],
    inputs=[{"name": "count", "type": "int", "default": 4}],
    outputs=["score"],
    description="Fit it.",
)


@pytest.fixture(autouse=True)
def _home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARHAND_HOME", str(tmp_path))


def test_a_flow_of_tasks_runs_in_the_order_of_their_names() -> None:
    assert train() == {"score": 6 + 1.5}
    assert train(count="3") == {"score": 3 + 1.0}


def test_its_tasks_stay_plain_functions() -> None:
    assert prepare(2) == [0, 1]
    assert next(iter(fit([2]))) == {"loss": 1.0}


def test_it_is_found_by_the_variable_it_is_kept_in() -> None:
    assert train.entry == f"{__name__}:train"
    found = inspected(train, "file.py")
    assert found["name"] == "train"
    assert found["schema"]["properties"] == {"count": {"type": "integer", "default": 4}}
    assert found["document"] == described(train.graph)  # type: ignore[arg-type]
    assert [node["id"] for node in found["document"]["nodes"]] == ["evaluate", "fit", "prepare"]


def test_nodes_that_do_not_wait_for_each_other_run_at_once() -> None:
    meeting = threading.Barrier(2, timeout=20)

    @task(provides="left")
    def one() -> int:
        return meeting.wait()

    @task(provides="right")
    def two() -> int:
        return meeting.wait()

    both = Flow("both", nodes=[one, two], outputs=["left", "right"])
    assert sorted(both().values()) == [0, 1]


def test_a_failed_node_stops_those_after_it_alone() -> None:
    done: list[str] = []

    @task(provides="x")
    def bad() -> None:
        raise ValueError("no luck")

    @task
    def after(x: Any) -> None:
        done.append("after")

    @task
    def other() -> None:
        done.append("other")

    with pytest.raises(NodeFailed, match=r"^node 'bad' failed: ValueError: no luck$"):
        Flow("partly", nodes=[bad, after, other])()
    assert done == ["other"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "node 'two' returned int, and has to return a dict of 'x', 'y'"),
        ({"x": 1}, "node 'two' did not deliver 'y'"),
        ({"x": 1, "y": 2, "z": 3}, "node 'two' delivers 'z', which it does not declare"),
        ({"x": "many", "y": 2}, "node 'two' delivers 'x' as something else than int"),
    ],
)
def test_what_is_not_delivered_as_declared_is_named(value: Any, said: str) -> None:
    @task(provides=[{"name": "x", "type": "int"}, "y"])
    def two() -> Any:
        return value

    with pytest.raises(NotDelivered) as caught:
        Flow("two-things", nodes=[two])()
    assert str(caught.value).startswith(said)


class Odd(dict[str, Any]):
    """Looking at it ends whoever does."""

    def __iter__(self) -> Any:
        raise SystemExit("no key for you")


def test_a_node_that_delivers_what_cannot_be_looked_at_fails() -> None:
    @task(provides="x")
    def odd() -> Any:
        return Odd()

    @task
    def after(x: Any) -> None:
        raise AssertionError

    with pytest.raises(NodeFailed, match=r"^node 'odd' failed: SystemExit: no key for you$"):
        Flow("odd-things", nodes=[odd, after])()


def test_an_undeclared_key_that_is_yielded_is_named() -> None:
    @task(provides=[{"name": "loss", "stream": True}])
    def fits() -> Any:
        yield {"acc": 1}

    with pytest.raises(NotDelivered, match="node 'fits' yields 'acc', which it does not declare as a stream"):
        Flow("yields", nodes=[fits])()


def test_an_async_generator_is_a_node_that_yields_all_it_delivers() -> None:
    @task(provides=[{"name": "loss", "type": "float", "stream": True}, "weights"])
    async def fits() -> Any:
        yield {"loss": 0.5}
        yield {"weights": 3}

    assert Flow("yields-async", nodes=[fits, evaluate], outputs=["score"])() == {"score": 3.5}


def test_mistakes_of_a_graph_are_told_where_it_is_written() -> None:
    with pytest.raises(
        InvalidDocument, match=r"flow 'odd': .*requires 'loss', which is no input and no node"
    ):
        Flow("odd", nodes=[evaluate])
    with pytest.raises(InvalidDocument, match="nodes: 3 is no task"):
        Flow("odd", nodes=[3])
    with pytest.raises(InvalidDocument, match="nodes must be a list with at least one task"):
        Flow("odd")
    with pytest.raises(InvalidDocument, match="another node has this id"):
        Flow("odd", nodes=[prepare, prepare], inputs=["count"])
    with pytest.raises(TypeError, match="has no parameter 'edges'"):
        Flow("odd", nodes=[prepare], inputs=["count"], edges=[])  # type: ignore[call-overload]


def test_a_task_that_cannot_be_such_a_node_is_refused() -> None:
    with pytest.raises(Usage, match="cannot be called with what it requires"):
        task(requires=["a"])(lambda b: b)
    with pytest.raises(Usage, match="provides a stream, and yields nothing"):
        task(provides=[{"name": "x", "stream": True}])(lambda: 1)
    with pytest.raises(NotSupported, match="reads a stream, which a process task cannot; leave process out"):
        task(requires=[{"name": "x", "stream": True}], process=True)(lambda x: list(x))


def test_a_service_is_a_node_that_gives_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARHAND_SERVICE_LLM", "http://here:8000")
    llm = Service("llm", ["serve", "{port}"], provides="llm_url")

    @task(provides="answer")
    def ask(llm_url: str) -> str:
        return f"asked {llm_url}"

    asking = Flow("asking", nodes=[ask, llm], outputs=["answer"])
    assert asking() == {"answer": "asked http://here:8000"}
    assert asking.services == [llm]
    assert asking.graph is not None
    shown = described(asking.graph)["nodes"]
    assert [node["type"] for node in shown] == ["task", "service"]
    with pytest.raises(InvalidDocument, match="a service that is a node needs provides"):
        Flow("odd", nodes=[Service("llm", ["serve", "{port}"])])
