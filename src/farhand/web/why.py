"""Why a run is where it is, and how its calls depend on one another."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Depends

from .. import graph
from ..engine.why import Why
from ..model import TaskRun
from .access import require
from .asking import Asking
from .routing import Routes
from .views import JsonResponse

router = Routes(prefix="/runs", tags=["runs"])
READ = [Depends(require("read"))]
NODES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Node:
    """A call. ``scope`` is the key of the call it was made in, empty for the flow's own."""

    key: str
    name: str
    number: int
    state: str
    scope: str
    index: int | None
    needs: list[str]


@dataclass(frozen=True, slots=True)
class Graph:
    """The calls of a run in the order they were made; ``truncated`` when there are more.

    ``shown`` and ``edges`` are what the console draws: the nodes of the document of a ``declared`` flow, with
    those that have not begun; of other runs the calls, of which many of one name are one node.
    """

    run: str
    nodes: list[Node]
    truncated: bool
    declared: bool
    shown: tuple[graph.Node, ...]
    edges: tuple[graph.Edge, ...]


@router.get("/{id}/why", response_model=Why, dependencies=READ)
async def why(id: str, services: Asking) -> JsonResponse:
    """Why the run waits, with the workers considered and the reason against each; or how it ended."""
    return JsonResponse(await services.explanations.why(id))


@router.get("/{id}/graph", response_model=Graph, dependencies=READ)
async def run_graph(id: str, services: Asking) -> JsonResponse:
    """The run's calls, and the calls whose results each one needs; and the graph that the console draws."""
    run = await services.runs.get(id)
    found = await services.graphs.of(run)
    drawn = (found.declared, found.nodes, found.edges)
    nodes: list[Node] = []
    after = 0
    while len(nodes) < NODES_MAX:
        page = await services.calls.page(run.id, after, 1000)
        nodes.extend(map(_node, page.items))
        if page.next is None:
            return JsonResponse(Graph(run.id, nodes, False, *drawn))
        after = page.items[-1].number
    return JsonResponse(Graph(run.id, nodes, True, *drawn))


def _node(task: TaskRun) -> Node:
    return Node(task.key, task.name, task.number, task.state, task.scope, task.index, list(task.needs or ()))
