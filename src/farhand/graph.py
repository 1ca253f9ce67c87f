"""A run as a graph: its nodes with their states, what passes between them, and where each is drawn.

For a declared flow the names of its document are the edges, so that what has not begun is there too; for any
other the calls and what each of them needed. Pure: who has the calls hands them over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .model import TaskRun

NODES_MAX = 120
"""More calls than this are shown as one node for each name."""

LOUDEST = ("running", "failed", "crashed", "queued", "cancelled", "skipped", "completed", "waiting")
"""Of the states of several calls, the one that their common node has."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``kind``: input, call, or the type of a declared node; ``count`` calls are behind it.

    ``state`` is that of its call, ``waiting`` before there is one, empty for inputs; ``call`` is its number.
    """

    id: str
    label: str
    kind: str
    state: str = ""
    message: str = ""
    count: int = 1
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """What one node gives another, by ``names`` where they are known."""

    source: str
    target: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes and edges of a run; ``declared`` when they come from a document.

    ``truncated`` when there are more calls than were looked at.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    declared: bool = False
    truncated: bool = False


# ---------------------------------------------------------------- what there is


def of_document(document: Mapping[str, Any], tasks: Iterable[TaskRun], ended: bool) -> Graph:
    """The graph of a declared flow, its nodes in the states of their calls."""
    known = {task.name: task for task in tasks}
    inputs = [_name(given) for given in document.get("inputs") or ()]
    provider = {name: f"input:{name}" for name in inputs}
    for node in document["nodes"]:
        provider |= {_name(output): node["id"] for output in node.get("provides") or ()}
    edges: dict[tuple[str, str], list[str]] = {}
    for node in document["nodes"]:
        for name in map(_name, node.get("requires") or ()):
            edges.setdefault((provider[name], node["id"]), []).append(name)
    taken = {source for source, _ in edges}
    nodes = [Node(f"input:{name}", name, "input") for name in inputs if f"input:{name}" in taken]
    nodes += [_declared(node, known.get(node["id"]), ended) for node in document["nodes"]]
    return Graph(tuple(nodes), tuple(Edge(*ends, tuple(names)) for ends, names in edges.items()), True)


def _name(given: Any) -> str:
    return given if isinstance(given, str) else given["name"]


def _declared(node: Mapping[str, Any], task: TaskRun | None, ended: bool) -> Node:
    if task is None:
        said = "was not begun" if ended else "waits for what it takes"
        return Node(node["id"], node["id"], node["type"], "waiting", said)
    return Node(node["id"], node["id"], node["type"], task.state, _said(task), call=task.number)


def _said(task: TaskRun) -> str:
    if task.error:
        return f"{task.error.get('type', 'Error')}: {task.error.get('message', '')}"
    return f"on {task.worker}" if task.worker else ""


def of_calls(tasks: Sequence[TaskRun]) -> Graph:
    """The graph of what a run has called so far; many calls of one name are one node."""
    merged = len(tasks) > NODES_MAX
    node_of = {task.key: task.name if merged else task.key for task in tasks}
    groups: dict[str, list[TaskRun]] = {}
    edges: dict[tuple[str, str], None] = {}
    for task in tasks:
        groups.setdefault(node_of[task.key], []).append(task)
        sources = [*(task.needs or ()), *([task.scope] if task.scope else ())]
        for source in sources:
            ends = (node_of.get(source, ""), node_of[task.key])
            if ends[0] and ends[0] != ends[1]:
                edges[ends] = None
    nodes = tuple(_called(id, calls) for id, calls in groups.items())
    return Graph(nodes, tuple(Edge(*ends) for ends in edges))


def _called(id: str, calls: Sequence[TaskRun]) -> Node:
    first = calls[0]
    if len(calls) == 1:
        label = first.name if first.index is None else f"{first.name}[{first.index}]"
        return Node(id, label, "call", first.state, _said(first), call=first.number)
    counts = Counter(task.state for task in calls)
    state = next((state for state in LOUDEST if counts[state]), first.state)
    said = ", ".join(f"{counts[state]} {state}" for state in LOUDEST if counts[state])
    return Node(id, f"{first.name} ×{len(calls)}", "call", state, said, len(calls), first.number)


# ---------------------------------------------------------------- where it is


WIDTH, HEIGHT = 168, 40
ACROSS, DOWN = 64, 16
"""Between two columns, and between two nodes of one."""

_SWEEPS = 4
_SLOT = {True: 12, False: HEIGHT + DOWN}
"""The height that a line passing through a column takes, and that of a node."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is drawn: its upper left corner."""

    node: Node
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Line:
    """An edge as the path of an SVG."""

    edge: Edge
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph as it is drawn, in columns from left to right."""

    places: tuple[Place, ...]
    lines: tuple[Line, ...]
    width: int
    height: int
    truncated: bool = False


def drawn(graph: Graph) -> Drawing:
    """Places for all nodes, each in a column after those it takes from, lines kept out of nodes' way."""
    column = _columns(graph)
    chains = [_chain(edge, column) for edge in graph.edges if column[edge.source] < column[edge.target]]
    shown = [edge for edge in graph.edges if column[edge.source] < column[edge.target]]
    columns = _ordered(graph, column, chains)
    tops, height = _tops(columns)
    nodes = {node.id: node for node in graph.nodes}
    places = [
        Place(nodes[item], index * (WIDTH + ACROSS), tops[item])
        for index, items in enumerate(columns)
        for item in items
        if item in nodes
    ]
    lines = [
        Line(edge, _path(chain, tops, column[edge.source])) for edge, chain in zip(shown, chains, strict=True)
    ]
    width = max(len(columns) * (WIDTH + ACROSS) - ACROSS, WIDTH)
    return Drawing(tuple(places), tuple(lines), width, max(height, HEIGHT), graph.truncated)


def _columns(graph: Graph) -> dict[str, int]:
    """The column of each node: one after the last of those it takes from. What is in a cycle stays first."""
    sources: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    targets: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        sources[edge.target].append(edge.source)
        targets[edge.source].append(edge.target)
    left = {id: len(found) for id, found in sources.items()}
    column = dict.fromkeys(sources, 0)
    ready = [id for id, count in left.items() if count == 0]
    for id in ready:
        for target in targets[id]:
            column[target] = max(column[target], column[id] + 1)
            left[target] -= 1
            if left[target] == 0:
                ready.append(target)
    return column


def _chain(edge: Edge, column: Mapping[str, int]) -> list[str]:
    """The nodes of an edge with a stop in each column between them."""
    between = range(column[edge.source] + 1, column[edge.target])
    return [edge.source, *(f"{edge.source}\0{edge.target}\0{index}" for index in between), edge.target]


def _ordered(graph: Graph, column: Mapping[str, int], chains: Sequence[Sequence[str]]) -> list[list[str]]:
    """What is in each column, from above, so that few lines cross: by the middle of its neighbours."""
    columns: list[list[str]] = [[] for _ in range(max(column.values(), default=0) + 1)]
    for node in graph.nodes:
        columns[column[node.id]].append(node.id)
    neighbours: dict[str, tuple[list[str], list[str]]] = {}
    for chain in chains:
        for index, item in enumerate(chain[1:-1], column[chain[0]] + 1):
            columns[index].append(item)
        for before, after in pairwise(chain):
            neighbours.setdefault(after, ([], []))[0].append(before)
            neighbours.setdefault(before, ([], []))[1].append(after)
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for items in columns if side == 0 else reversed(columns):
            where = {item: index for each in columns for index, item in enumerate(each)}
            items.sort(
                key=lambda item, where=where: _middle(neighbours.get(item, ([], []))[side], where, item)
            )
    return columns


def _middle(neighbours: Sequence[str], where: Mapping[str, int], item: str) -> float:
    if not neighbours:
        return float(where[item])
    return sum(where[each] for each in neighbours) / len(neighbours)


def _tops(columns: Sequence[Sequence[str]]) -> tuple[dict[str, int], int]:
    """The upper edge of everything, each column in the middle of the height."""
    heights = [sum(_SLOT["\0" in item] for item in items) for items in columns]
    whole = max(heights, default=0)
    tops: dict[str, int] = {}
    for items, height in zip(columns, heights, strict=True):
        top = (whole - height) // 2
        for item in items:
            tops[item] = top
            top += _SLOT["\0" in item]
    return tops, whole - DOWN


def _path(chain: Sequence[str], tops: Mapping[str, int], first: int) -> str:
    """A smooth line from the right of the first node to the left of the last."""
    middle = {item: tops[item] + (6 if "\0" in item else HEIGHT // 2) for item in chain}
    x = first * (WIDTH + ACROSS) + WIDTH
    path = [f"M{x} {middle[chain[0]]}"]
    for item in chain[1:]:
        bend, end = x + ACROSS // 2, x + ACROSS
        before = middle[chain[chain.index(item) - 1]]
        path.append(f"C{bend} {before} {bend} {middle[item]} {end} {middle[item]}")
        x = end
        if "\0" in item:
            x += WIDTH
            path.append(f"H{x}")
    return " ".join(path)
