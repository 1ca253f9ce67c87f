"""The graph of a declared flow: what its nodes take and give, by name, and what is wrong with it.

A node runs once all that it ``requires`` is there: inputs of the flow, and what other nodes provide. So the
names are the edges, and nothing else says what comes first.
"""

from __future__ import annotations

import keyword
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from farhand.errors import InvalidParameters, NotDelivered

from .annotations import kind_of
from .references import ArtifactRef

TYPES: Dict[str, Any] = {
    "any": Any,
    "artifact": ArtifactRef,
    "bool": bool,
    "dict": dict,
    "float": float,
    "int": int,
    "list": list,
    "str": str,
}
"""What the type of an input or output may be called → the annotation that it means."""

ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
VALUE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

MISSING: Any = object()
"""The default of an input that has none."""


class Input(NamedTuple):
    """A parameter of a declared flow."""

    name: str
    type: str = "any"
    default: Any = MISSING

    def described(self) -> Dict[str, Any]:
        """As JSON."""
        shown: Dict[str, Any] = {"name": self.name, "type": self.type}
        return shown if self.default is MISSING else {**shown, "default": self.default}


class Output(NamedTuple):
    """What a node provides. ``stream``: it yields values while it runs, and provides the list of them."""

    name: str
    type: str = "any"
    stream: bool = False

    def fits(self, value: Any, node: str) -> Any:
        """The value as it is passed on. Raises `NotDelivered`."""
        try:
            return kind_of(TYPES[self.type]).convert(value, self.name)
        except InvalidParameters as error:
            raise NotDelivered(
                f"node {node!r} delivers {self.name!r} as something else than {self.type}: {error}"
            ) from error

    def described(self) -> Dict[str, Any]:
        """As JSON."""
        shown: Dict[str, Any] = {"name": self.name, "type": self.type}
        return {**shown, "stream": True} if self.stream else shown


class Member(NamedTuple):
    """A node as its graph sees it."""

    id: str
    requires: Tuple[str, ...]
    provides: Tuple[Output, ...]
    type: str = "task"
    along: Tuple[str, ...] = ()
    """Which of the names that it requires it reads along: they are streams."""

    def delivered(self, value: Any) -> Dict[str, Any]:
        """What the node returned, by output. Raises `NotDelivered` for what is missing, more or unfit.

        A dict of exactly the outputs is taken by name; else a single output is the value itself.
        """
        names = [output.name for output in self.provides]
        if not names:
            return {}
        if len(names) == 1 and not (isinstance(value, dict) and set(value) == set(names)):
            value = {names[0]: value}
        if not isinstance(value, dict):
            raise NotDelivered(
                f"node {self.id!r} returned {type(value).__name__}, and has to return a dict of "
                + ", ".join(map(repr, names))
            )
        for name in names:
            if name not in value:
                raise NotDelivered(f"node {self.id!r} did not deliver {name!r}")
        for name in value:
            if name not in names:
                raise NotDelivered(f"node {self.id!r} delivers {name!r}, which it does not declare")
        return {output.name: _fit(output, value[output.name], self.id) for output in self.provides}


def _fit(output: Output, value: Any, node: str) -> Any:
    if output.stream:
        return [output.fits(item, node) for item in value]
    return output.fits(value, node)


class Mistake(NamedTuple):
    """What is wrong, in a sentence that names the node; ``node`` is None for the flow's own fields."""

    node: Optional[str]
    message: str


def shortened(value: Any) -> str:
    """What somebody wrote, as a mistake quotes it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


class Graph(NamedTuple):
    """The inputs, nodes and outputs of a declared flow."""

    inputs: Tuple[Input, ...]
    members: Tuple[Member, ...]
    outputs: Tuple[str, ...]

    def providers(self) -> Dict[str, str]:
        """Name → the node that provides it."""
        return {output.name: member.id for member in self.members for output in member.provides}

    def ordered(self) -> List[Member]:
        """The nodes, each after those it takes from; else in the order they are declared in."""
        providers = self.providers()
        done: Set[str] = set()
        order: List[Member] = []
        waiting = list(self.members)
        while waiting:
            ready = [
                m
                for m in waiting
                if all(providers.get(n, m.id) in done for n in m.requires if n in providers)
            ]
            if not ready:
                break
            order += ready
            done.update(member.id for member in ready)
            waiting = [member for member in waiting if member.id not in done]
        return order


# ---------------------------------------------------------------- mistakes


def is_value_name(name: Any) -> bool:
    """Whether a value may be called that: it becomes the name of a parameter."""
    return isinstance(name, str) and VALUE.fullmatch(name) is not None and not keyword.iskeyword(name)


def mistakes_of(graph: Graph) -> List[Mistake]:
    """All that is wrong with the names of a graph: nothing, if it can run."""
    return [*_twice(graph), *_unknown(graph), *_cycles(graph)]


def _twice(graph: Graph) -> List[Mistake]:
    found: List[Mistake] = []
    ids: Set[str] = set()
    for member in graph.members:
        if member.id in ids:
            found.append(Mistake(member.id, f"node {member.id!r}: another node has this id"))
        ids.add(member.id)
    holders: Dict[str, str] = {}
    for given in graph.inputs:
        if given.name in holders:
            found.append(Mistake(None, f"inputs: {given.name!r} is there twice"))
        holders[given.name] = "an input of the flow"
    for member in graph.members:
        for name in sorted({n for n in member.requires if member.requires.count(n) > 1}):
            found.append(Mistake(member.id, f"node {member.id!r}: requires {name!r} twice"))
        for output in member.provides:
            if output.name in holders:
                holder = holders[output.name]
                text = f"node {member.id!r}: provides {output.name!r}, which is {holder} already"
                found.append(Mistake(member.id, text))
            holders[output.name] = f"provided by node {member.id!r}"
    for name in sorted({n for n in graph.outputs if graph.outputs.count(n) > 1}):
        found.append(Mistake(None, f"outputs: {name!r} is there twice"))
    return found


def _unknown(graph: Graph) -> List[Mistake]:
    known = {given.name for given in graph.inputs} | set(graph.providers())
    found = [
        Mistake(member.id, f"node {member.id!r}: requires {name!r}, which is no input and no node provides")
        for member in graph.members
        for name in dict.fromkeys(member.requires)
        if name not in known
    ]
    found += [
        Mistake(member.id, f"node {member.id!r}: reads {name!r} as a stream, which {reason}")
        for member in graph.members
        for name in member.along
        if (reason := _no_stream(graph, name))
    ]
    found += [
        Mistake(None, f"outputs: {name!r} is no input and no node provides it")
        for name in dict.fromkeys(graph.outputs)
        if name not in known
    ]
    return found


def _no_stream(graph: Graph, name: str) -> str:
    """Why a name is no stream; empty for one that is, or that nobody has."""
    if any(given.name == name for given in graph.inputs):
        return "is an input of the flow"
    found = [(m.id, output) for m in graph.members for output in m.provides if output.name == name]
    if not found or any(output.stream for _, output in found):
        return ""
    return f"node {found[0][0]!r} provides without stream"


def _cycles(graph: Graph) -> List[Mistake]:
    """The first cycle, with its path; the nodes on it, and those after them, could never begin."""
    providers = graph.providers()
    after = {m.id: [providers[n] for n in m.requires if n in providers] for m in graph.members}
    done: Set[str] = set()
    for start in after:
        path: List[str] = []
        stack: List[Tuple[str, int]] = [(start, 0)]
        while stack:
            node, index = stack.pop()
            if index == 0:
                if node in done:
                    continue
                path.append(node)
            if index < len(after[node]):
                stack.append((node, index + 1))
                following = after[node][index]
                if following in path:
                    cycle = path[path.index(following) :][::-1]
                    shown = " → ".join([cycle[-1], *cycle])
                    return [Mistake(node, f"node {node!r}: waits for itself: {shown}")]
                if following not in done:
                    stack.append((following, 0))
            else:
                done.add(node)
                path.pop()
    return []


def names_of(given: Sequence[Output]) -> List[str]:
    """The names of outputs."""
    return [output.name for output in given]
