"""Declared flows in Python: ``Flow("train", nodes=[prepare, fit], inputs=["lr"], outputs=["score"])``.

The nodes are tasks that say what they take and give, with ``@task(requires=…, provides=…)``. Imported by
whoever declares one.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Tuple

from farhand.errors import InvalidDocument, NotSupported, Usage

from . import declared, sources
from .documents import Reader, refusal
from .graphs import Graph, Member, Output, is_value_name, mistakes_of
from .services import Service
from .streams import read_by

if TYPE_CHECKING:
    from .steps import Step
    from .tasks import Task

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _no_source(source: str, member: Member) -> List[str]:
    return []


def member_of(task: Task[Any], given: Mapping[str, Any]) -> Member:
    """What a task takes and gives as a node. Raises `InvalidDocument`, `Usage`, `NotSupported`.

    What it ``requires`` are its parameters without a default, where it does not say.
    """
    reader = Reader(_no_source)
    requires = given.get("requires")
    names = _listed(_needed(task) if requires is None else requires)
    required, along = reader.requires(task.name, names)
    provided = reader.provides(task.name, _listed(given.get("provides") or []))
    member = Member(task.name, tuple(required), tuple(provided), along=tuple(along))
    if reader.mistakes:
        raise refusal(reader.mistakes)
    try:
        task.signature.bind(**dict.fromkeys(member.requires))
    except TypeError as error:
        raise Usage(f"{task.name} cannot be called with what it requires: {error}") from None
    _check_streams(task, member)
    return member


def _check_streams(task: Task[Any], member: Member) -> None:
    if member.along and task.options.process:
        raise NotSupported(f"{task.name} reads a stream, which a process task cannot; leave process out")
    if inspect.isasyncgenfunction(task.function):
        return
    if not any(output.stream for output in member.provides):
        return
    if not inspect.isgeneratorfunction(task.function):
        raise Usage(f"{task.name} provides a stream, and yields nothing")


def body_of(member: Member, function: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """What a call of a node runs: ``plain``, or what drains a generator into its outputs."""
    if inspect.isasyncgenfunction(function):
        return functools.partial(sources.awaited, member, function)
    if any(output.stream for output in member.provides):
        return functools.partial(sources.call, member, function)
    return read_by(plain, inspect.iscoroutinefunction(function)) if member.along else plain


def assemble(
    name: str, given: Dict[str, Any], module: str
) -> Tuple[Callable[..., Any], Graph, Dict[str, Step[Any]]]:
    """The function, graph and steps of a flow; takes ``nodes``, ``inputs``, ``outputs`` out of ``given``.

    Raises `InvalidDocument` with every mistake.
    """
    reader = Reader(_no_source)
    members: List[Member] = []
    steps: Dict[str, Step[Any]] = {}
    for node in given.pop("nodes", None) or ():
        if isinstance(node, Service):
            members.append(_hosted(reader, node))
            steps[node.name] = declared.ServiceStep(node)
            continue
        if getattr(node, "word", "") != "task":
            reader.say(None, f"nodes: {node!r} is no task, and no Service")
            continue
        member = node.member or member_of(node, {})
        members.append(member)
        steps[member.id] = node
    inputs = reader.inputs(_listed(given.pop("inputs", None) or []))
    outputs = reader.names(None, "outputs", _listed(given.pop("outputs", None) or []))
    graph = Graph(tuple(inputs), tuple(members), tuple(outputs))
    if not members and not reader.mistakes:
        reader.say(None, "nodes must be a list with at least one task")
    mistakes = [*reader.mistakes, *mistakes_of(graph)]
    if mistakes:
        raise InvalidDocument(f"flow {name!r}: {refusal(mistakes)}", **refusal(mistakes).details)
    return declared.function_of(name, module, graph, steps), graph, steps


def described(graph: Graph) -> Dict[str, Any]:
    """The graph as a document has it, its nodes being tasks of a project."""
    return {
        "inputs": [given.described() for given in graph.inputs],
        "outputs": list(graph.outputs),
        "nodes": [
            {
                "id": member.id,
                "type": member.type,
                "requires": [
                    {"name": name, "stream": True} if name in member.along else name
                    for name in member.requires
                ],
                "provides": [output.described() for output in member.provides],
            }
            for member in graph.members
        ],
    }


def _hosted(reader: Reader, service: Service) -> Member:
    if not is_value_name(service.provides):
        reader.say(service.name, "a service that is a node needs provides: the name of its address")
    return Member(service.name, (), (Output(service.provides, "str"),), "service")


def _needed(task: Task[Any]) -> List[str]:
    return [
        name
        for name, parameter in task.signature.parameters.items()
        if parameter.kind in _NAMED and parameter.default is inspect.Parameter.empty
    ]


def _listed(given: Any) -> Any:
    return (
        list(given)
        if isinstance(given, (tuple, list))
        else [given]
        if isinstance(given, (str, dict))
        else given
    )
