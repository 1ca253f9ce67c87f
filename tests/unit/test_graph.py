"""The graph of a run: from a document or from its calls, and where its nodes are drawn."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from farhand.graph import HEIGHT, NODES_MAX, WIDTH, Edge, Graph, Node, drawn, of_calls, of_document
from farhand.model import TaskRun

DOCUMENT = {
    "inputs": ["lr", {"name": "unused"}],
    "nodes": [
        {"id": "a", "type": "python", "requires": ["lr"], "provides": ["x", {"name": "y", "stream": True}]},
        {"id": "b", "type": "python", "requires": ["x", {"name": "y", "stream": True}], "provides": ["z"]},
        {"id": "c", "type": "python", "requires": ["z", "x"]},
    ],
}


def call(number: int, name: str, state: str = "completed", *needs: int, scope: str = "") -> TaskRun:
    return TaskRun("r", f"k{number}", number, name, state, scope, needs=tuple(f"k{need}" for need in needs))


def graph(edges: list[tuple[str, str]]) -> Graph:
    ids = dict.fromkeys(id for edge in edges for id in edge)
    return Graph(tuple(Node(id, id, "call") for id in ids), tuple(Edge(*edge) for edge in edges))


def test_a_document_has_all_its_nodes_whatever_has_begun() -> None:
    found = of_document(DOCUMENT, [call(4, "a"), call(5, "b", "running")], ended=False)
    assert [(node.id, node.state, node.call) for node in found.nodes] == [
        ("input:lr", "", None),
        ("a", "completed", 4),
        ("b", "running", 5),
        ("c", "waiting", None),
    ]
    assert [(edge.source, edge.target, edge.names) for edge in found.edges] == [
        ("input:lr", "a", ("lr",)),
        ("a", "b", ("x", "y")),
        ("b", "c", ("z",)),
        ("a", "c", ("x",)),
    ]


def test_calls_are_linked_by_what_they_needed_and_by_who_made_them() -> None:
    found = of_calls([call(1, "load"), call(2, "fit", "failed", 1), call(3, "inner", "running", scope="k2")])
    assert [node.state for node in found.nodes] == ["completed", "failed", "running"]
    assert [(edge.source, edge.target) for edge in found.edges] == [("k1", "k2"), ("k2", "k3")]


def test_many_calls_of_one_name_are_one_node() -> None:
    calls = [call(n, "each", "completed" if n else "failed") for n in range(NODES_MAX)]
    found = of_calls([*calls, call(999, "sum", "queued", *range(NODES_MAX))])
    assert [(node.label, node.state, node.count) for node in found.nodes] == [
        (f"each ×{NODES_MAX}", "failed", NODES_MAX),
        ("sum", "queued", 1),
    ]
    assert [(edge.source, edge.target) for edge in found.edges] == [("each", "sum")]


def test_a_node_is_right_of_all_that_it_takes_from() -> None:
    drawing = drawn(graph([("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")]))
    x = {place.node.id: place.x for place in drawing.places}
    assert x["a"] == x["d"] == 0
    assert x["a"] < x["b"] < x["c"]
    assert len(drawing.lines) == 4


@pytest.mark.parametrize("seed", range(20))
def test_no_two_nodes_lie_on_each_other_and_all_are_inside(seed: int) -> None:
    chance = random.Random(seed)
    edges = [(f"n{chance.randrange(target)}", f"n{target}") for target in range(1, 30) for _ in range(2)]
    drawing = drawn(graph(list(dict.fromkeys(edges))))
    spots = sorted((place.x, place.y) for place in drawing.places)
    assert all(x != then_x or y + HEIGHT <= then_y for (x, y), (then_x, then_y) in pairwise(spots))
    assert all(0 <= x <= drawing.width - WIDTH and 0 <= y <= drawing.height - HEIGHT for x, y in spots)


def test_lines_cross_less_than_in_the_order_they_came() -> None:
    drawing = drawn(graph([("a", "z"), ("b", "y"), ("c", "x")]))
    y = {place.node.id: place.y for place in drawing.places}
    assert [y["z"], y["y"], y["x"]] == sorted([y["z"], y["y"], y["x"]])


@pytest.mark.parametrize("found", [Graph((), ()), Graph((Node("a", "a", "call"),), ())])
def test_a_graph_without_edges_is_drawn_too(found: Graph) -> None:
    assert drawn(found).height >= HEIGHT


def test_a_cycle_in_what_was_recorded_is_drawn_without_end() -> None:
    assert len(drawn(graph([("a", "b"), ("b", "a"), ("b", "c")])).places) == 3
