"""Declared flows: nodes that run once what they take is there, at once where nothing orders them.

A flow that was put as a document is a bundle of its own, a package `PACKAGE` with the document, the sources
as they are, and a few lines for each job: ``flow`` is the flow, ``call_N_ID`` the node that a placed call
runs. So what is compiled is compiled by the engine of the machine that runs it, after the same import check
as any code, and nothing has to be deployed.

Each node is a call with a key like any other. Its outputs reach those after it as futures of that call, so
that all keys are known before anything has run, those of nodes that are skipped too.
"""

from __future__ import annotations

import contextvars
import inspect
import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from farhand.errors import FarhandError, NodeFailed, NodeSkipped, StreamBroken, TimedOut

from . import calls, documents, encoding, events, reading, sources
from .calls import Call
from .context import Frame, current
from .deadlines import Words
from .feeds import Feed
from .flows import Flow
from .futures import Future
from .graphs import MISSING, TYPES, Graph, Input, Member
from .hashing import digest_of
from .hooks import Hooks
from .interrupts import is_interruption
from .options import Options
from .services import Service, service_url
from .steps import Step
from .tasks import Task

if TYPE_CHECKING:
    from .documents import Document, Node

PACKAGE = "farhand_declared"
DOCUMENT = "flow.json"
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
_ANY_WAY = inspect.Parameter.POSITIONAL_OR_KEYWORD
Values = Dict[str, Any]

_TIMEOUT = "{name!r} took longer than its duration_timeout of {limit_s:g} s"
_SILENCE = "{name!r} reported nothing for {limit_s:g} s"

# ---------------------------------------------------------------- running a graph


class Running:
    """One run of a graph: every node is submitted at once, and begins when what it takes is there."""

    def __init__(self, graph: Graph, steps: Dict[str, Step[Any]], frame: Frame, values: Values) -> None:
        self._graph = graph
        self._steps = steps
        self._frame = frame
        self._values = values
        self._context = contextvars.copy_context()
        self._ends: Dict[str, Future[None]] = {}
        self._feeds: Dict[str, Feed] = {}
        self._outcomes: Dict[str, Optional[BaseException]] = {}

    def result(self) -> Values:
        """The outputs of the flow. Raises what the first failed node failed with, once all have ended."""
        for member in self._graph.ordered():
            self._begin(member)
        for end in self._ends.values():
            end.result()
        self._raise_failures()
        return {name: self._given(name) for name in self._graph.outputs}

    def _given(self, name: str) -> Any:
        value = self._values[name]
        return value.result() if isinstance(value, Future) else value

    def _begin(self, member: Member) -> None:
        """Submit a node, after those that it takes from."""
        feed = Feed(self._frame.run, member.id, self._read_elsewhere(member))
        self._feeds.update({output.name: feed for output in member.provides if output.stream})
        made = self._called(member, feed)
        end = self._ends[member.id] = Future(made.key, member.id)
        end.waits = self._frame.run.pool.waits
        picks = {output.name: Future[Any](made.key, member.id) for output in member.provides}
        self._values.update(picks)
        self._submit(member, made, feed, picks)

    def _read_elsewhere(self, member: Member) -> List[str]:
        """The streams of a node that nodes read along in other processes."""
        run = self._frame.run
        if run.place is None:
            return []
        elsewhere = self._steps[member.id].options.places
        readers = [m for m in self._graph.members if elsewhere or self._steps[m.id].options.places]
        return [o.name for o in member.provides if any(o.name in reader.along for reader in readers)]

    def _called(self, member: Member, feed: Feed) -> Call:
        """The node's next call; each has a key of its own."""
        step = self._steps[member.id]
        taken = {
            name: self._feeds[name].pick(name) if name in member.along else self._values[name]
            for name in member.requires
        }
        self._frame.run.check()
        made = Call(step, self._frame, (), taken)
        if any(output.stream for output in member.provides):
            feed.called(made.key, calls.placed_elsewhere(made))
        return made

    def _submit(self, member: Member, made: Call, feed: Feed, picks: Dict[str, Future[Any]]) -> None:
        future = calls.submit_call(made)
        future.when_done(lambda: self._ended(member, future, feed, picks))

    def _ended(self, member: Member, future: Future[Any], feed: Feed, picks: Dict[str, Future[Any]]) -> None:
        """A call of a node has ended: it is the node's end, unless what it read along broke off."""
        future.seen = True
        if not (member.along and isinstance(future.error, StreamBroken)):
            self._conclude(member, future, feed, picks)
            return
        # On a thread of its own: this one may be the one that reads what the agent answers.
        threading.Thread(
            target=self._context.copy().run,
            args=(self._submit_again, member, future, feed, picks),
            name="farhand-again",
            daemon=True,
        ).start()

    def _submit_again(
        self, member: Member, broken: Future[Any], feed: Feed, picks: Dict[str, Future[Any]]
    ) -> None:
        try:
            made = self._called(member, feed)
            text = f"{member.id} begins again, with the next attempt of what it reads: {broken.error}"
            self._frame.run.log(text, "warning", broken.key, self._frame.nested)
            self._submit(member, made, feed, picks)
        except BaseException as error:  # noqa: BLE001 - whatever it is ends the node
            failed: Future[Any] = Future(broken.key, member.id)
            failed.settle(error=error)
            self._conclude(member, failed, feed, picks)

    def _conclude(
        self, member: Member, future: Future[Any], feed: Feed, picks: Dict[str, Future[Any]]
    ) -> None:
        """Pass on what a node has delivered, or that those after it are not run."""
        error, delivered = future.error, {}
        if error is None:
            try:
                delivered = member.delivered(future.result())
            except BaseException as wrong:  # noqa: BLE001 - a node may return what resists being looked at
                error = wrong
        self._outcomes[member.id] = error
        if isinstance(error, NodeSkipped):
            self._note_skipped(member, future, error)
        passed = error
        if error is not None and not isinstance(error, NodeSkipped) and not is_interruption(error):
            passed = NodeSkipped(f"not run, since node {member.id!r} failed")
        for name, pick in picks.items():
            if passed is None:
                pick.settle(delivered[name])
            else:
                pick.settle(error=passed)
        feed.finish(delivered, passed)
        self._ends[member.id].settle(None)

    def _note_skipped(self, member: Member, future: Future[Any], error: NodeSkipped) -> None:
        if not self._frame.run.recorder.recording:
            return
        now = events.now()
        body = {
            "key": future.key,
            "name": self._steps[member.id].name,
            "state": "skipped",
            "started_at": now,
            "ended_at": now,
            "scope": self._frame.key,
            "attempts": 0,
            "kept": False,
            "nested": self._frame.nested,
            "error": {
                "type": "NodeSkipped",
                "module": "farhand.errors",
                "message": str(error),
                "traceback": "",
            },
        }
        self._frame.run.recorder.write(events.line("checkpoint", body))

    def _raise_failures(self) -> None:
        failed = {
            node: error
            for node, error in self._outcomes.items()
            if error is not None and not isinstance(error, NodeSkipped)
        }
        if not failed:
            return
        order = [member.id for member in self._graph.members if member.id in failed]
        first, error = order[0], failed[order[0]]
        others = ", ".join(repr(node) for node in order[1:])
        more = f"; also failed: {others}" if others else ""
        if is_interruption(error):
            raise error
        if isinstance(error, TimedOut) and f"{first!r} " in str(error):
            raise type(error)(f"{error}{more}") from error
        if isinstance(error, FarhandError) and f"node {first!r}" in str(error):
            raise type(error)(f"{error}{more}") from error
        raise NodeFailed(f"node {first!r} failed: {encoding.summary_of(error)}{more}") from error


def function_of(name: str, module: str, graph: Graph, steps: Dict[str, Step[Any]]) -> Callable[..., Any]:
    """The function that runs a graph, with the flow's inputs as its parameters."""

    def run_graph(**values: Any) -> Values:
        frame = current()
        assert frame is not None  # a flow's body runs inside of its run, in scripts too
        return Running(graph, steps, frame, dict(values)).result()

    run_graph.__name__ = run_graph.__qualname__ = name
    run_graph.__module__ = module
    run_graph.__doc__ = None
    run_graph.__signature__ = inspect.Signature([_parameter(given) for given in graph.inputs])  # pyright: ignore[reportFunctionMemberAccess]
    return run_graph


def _parameter(given: Input) -> inspect.Parameter:
    default = inspect.Parameter.empty if given.default is MISSING else given.default
    return inspect.Parameter(given.name, _KEYWORD_ONLY, default=default, annotation=TYPES[given.type])


# ---------------------------------------------------------------- nodes of documents


class NodeTask(Task[Any]):
    """A node of a document as a task. Its source is loaded when it is first called."""

    def __init__(self, node: Node, number: int) -> None:
        self._node = node
        self._module = f"{PACKAGE}.node_{stem(number, node.member.id)}"
        self._loaded: Optional[Callable[..., Any]] = None
        self._awaited = reading.is_awaited(node.source)
        super().__init__(self._function(), node.options, Hooks(), {"name": node.member.id})
        self.entry = f"{PACKAGE}.call_{stem(number, node.member.id)}:node"
        shape = json.dumps(
            [node.member.requires, [o.described() for o in node.member.provides], *node.member.along]
        )
        self.limit_words = Words(node.member.id, _TIMEOUT, _SILENCE)
        self.identity = f"node {node.member.id} {digest_of([shape.encode(), node.source.encode()])}"

    def load(self) -> Callable[..., Any]:
        """The entry in the node's source. Raises `CannotLoad`."""
        if self._loaded is None:
            self._loaded = sources.load(self._node.member.id, self._module, awaited=self._awaited)
        return self._loaded

    def _function(self) -> Callable[..., Any]:
        member = self._node.member

        def process(**values: Any) -> Values:
            return sources.call(member, self.load(), **values)

        async def process_awaited(**values: Any) -> Values:
            return await sources.awaited(member, self.load(), **values)

        made: Callable[..., Any] = process_awaited if self._awaited else process
        made.__module__ = PACKAGE
        parameters = [inspect.Parameter(name, _ANY_WAY) for name in member.requires]
        made.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        return made


def stem(number: int, node: str) -> str:
    """What the modules of a node are called after: its place, and its id as far as a module can have it."""
    return f"{number}_{re.sub(r'[^A-Za-z0-9_]', '_', node)}"


class ServiceStep(Task[Any]):
    """The address of a service, once it is healthy. Another attempt asks anew: it may have moved."""

    passing = True

    def __init__(self, service: Service) -> None:
        def address() -> Values:
            return {service.provides: self._address(service)}

        address.__module__ = PACKAGE
        super().__init__(address, Options({}), Hooks(), {"name": service.name})
        self.service = service
        self.entry = f"{PACKAGE}:{service.name}"
        self.identity = f"service {service.name}"

    def _address(self, service: Service) -> str:
        """Wait for it as long as it takes, which a service that is given up ends."""
        frame = current()
        if frame is not None:
            frame.run.log(f"waits until the service {service.name!r} is healthy", "info", frame.key)
        return service_url(service, timeout=None)


def steps_of(document: Document) -> Dict[str, Step[Any]]:
    """The task of each node, by id."""
    steps: Dict[str, Step[Any]] = {}
    for number, node in enumerate(document.nodes):
        steps[node.member.id] = NodeTask(node, number) if node.service is None else ServiceStep(node.service)
    return steps


def flow_of(document: Document, name: str) -> Flow[Any]:
    """The flow of a document that was put under a name."""
    graph, steps = document.graph, steps_of(document)
    function = function_of(name, f"{PACKAGE}.flow", graph, steps)
    made = Flow(function, Options({}), Hooks(), {"name": name, "description": document.description})
    made.entry = f"{PACKAGE}.flow:flow"
    made.nodes = list(steps.values())
    made.schedules = [planned.schedule for planned in document.schedules]
    made.services = [step.service for step in made.nodes if step.service is not None]
    return made


def read_beside(place: str) -> Document:
    """The document of a bundle, of which ``place`` is a module."""
    with open(os.path.join(os.path.dirname(place), DOCUMENT), encoding="utf-8") as file:
        return documents.read(json.load(file), lambda source, member: [])


def flow_beside(place: str, name: str) -> Flow[Any]:
    """The flow of a bundle, of which ``place`` is a module; nothing of its sources is loaded."""
    return flow_of(read_beside(place), name)


def node_beside(place: str, node: str) -> Step[Any]:
    """The task of a node, its source loaded; what the module of a placed call consists of."""
    task = steps_of(read_beside(place))[node]
    assert isinstance(task, NodeTask)
    task.load()
    return task
