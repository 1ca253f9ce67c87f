# ruff: noqa: E501 - a row of the table is a line
"""The document of a declared flow: what is read from one, and every mistake that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.errors import InvalidDocument
from farhand.sdk.documents import NODES_MAX, SOURCE_CHARS_MAX, read

Given = dict[str, Any]
ODD = "a \"quoted\" 'name'\nwith a line, $(touch /tmp/x) and `more`" + "x" * 300


def node(id: Any = "n", source: Any = "def process(): return 1", **more: Any) -> Given:
    """A Python node."""
    return {"id": id, "type": "python", "source": source, **more}


def flow(*nodes: Any, **more: Any) -> Given:
    """A document of these nodes."""
    return {"nodes": list(nodes), **more}


def takes(*names: str) -> str:
    """A source whose entry has these parameters."""
    return f"def process({', '.join(names)}): return 1"


def stream(name: str, **more: Any) -> Given:
    """A streamed output."""
    return {"name": name, "stream": True, **more}


def service(id: Any = "llm", **more: Any) -> Given:
    """A node that is a service."""
    return {"id": id, "type": "service", "command": ["serve"], "port": 80, "provides": ["url"], **more}


MISTAKES: list[tuple[str, Any, str]] = [
    ("no object", [], "the document must be an object with nodes"),
    ("no nodes", {}, "nodes must be a list with at least one node"),
    ("nodes is no list", {"nodes": {"a": 1}}, "nodes must be a list with at least one node"),
    ("too many nodes", flow(*[node(f"n{i}") for i in range(NODES_MAX + 1)]), "there are 501 nodes, and may be 500"),
    ("an unknown field", flow(node(), edges=[]), "there is no field 'edges'; there are: description, inputs, nodes, outputs, schedules"),
    ("description", flow(node(), description=3), "description must be text"),
    ("inputs is no list", flow(node(), inputs="lr"), "inputs must be a list"),
    ("an input without a name", flow(node(), inputs=[{"type": "int"}]), "inputs: {'type': 'int'} has no name that a parameter can have"),
    ("an input that is a keyword", flow(node(), inputs=["class"]), "inputs: 'class' has no name that a parameter can have"),
    ("an input of an unknown type", flow(node(), inputs=[{"name": "a", "type": "double"}]), "inputs: 'a' has the type 'double'; there are: any, artifact, bool, dict, float, int, list, str"),
    ("an input with an unknown field", flow(node(), inputs=[{"name": "a", "min": 1}]), "inputs: 'a' has no field 'min'; there are: default, name, type"),
    ("a default of another type", flow(node(), inputs=[{"name": "a", "type": "int", "default": "x"}]), "inputs: the default of 'a' is no int: a: must be a whole number"),
    ("an input twice", flow(node(), inputs=["a", "a"]), "inputs: 'a' is there twice"),
    ("outputs is no list", flow(node(), outputs="x"), "outputs must be a list of names"),
    ("an output nobody provides", flow(node(), outputs=["x"]), "outputs: 'x' is no input and no node provides it"),
    ("an output twice", flow(node(provides=["x"]), outputs=["x", "x"]), "outputs: 'x' is there twice"),
    ("schedules is no list", flow(node(), schedules={"every": 60}), "schedules must be a list"),
    ("too many schedules", flow(node(), schedules=[{"every": 60 + i} for i in range(101)]), "there are 101 schedules, and may be 100"),
    ("a schedule that is no object", flow(node(), schedules=["daily"]), "schedules: in place 1: 'daily' is no object with either \"cron\" or \"every\""),
    ("a schedule without a time", flow(node(), schedules=[{"inputs": {}}]), "schedules: in place 1: {'inputs': {}} is no object with either"),
    ("a schedule with two times", flow(node(), schedules=[{"every": 60}, {"every": 60, "cron": "* * * * *"}]), "schedules: in place 2: {'every': 60, 'cron': '* * * * *'} is no object with either"),
    ("an unknown field of a schedule", flow(node(), schedules=[{"every": 60, "tz": "UTC"}]), "schedules: in place 1: there is no field 'tz'; there are: anchor, cron, every, inputs, overlap, timezone"),
    ("a time zone of an interval", flow(node(), schedules=[{"every": 60, "timezone": "UTC"}]), "schedules: in place 1: timezone means nothing beside every"),
    ("an anchor of a cron", flow(node(), schedules=[{"cron": "* * * * *", "anchor": 0}]), "schedules: in place 1: anchor means nothing beside cron"),
    ("a cron of four fields", flow(node(), schedules=[{"cron": "0 6 * *"}]), "schedules: in place 1: cron('0 6 * *') needs five fields: minute, hour, day, month, day of the week"),
    ("a cron that is no text", flow(node(), schedules=[{"cron": 6}]), "schedules: in place 1: cron(6) needs five fields"),
    ("a zone that is no place's", flow(node(), schedules=[{"cron": "* * * * *", "timezone": "EST"}]), "schedules: in place 1: timezone 'EST' is not a place's time zone; give one such as 'Europe/Berlin', or 'UTC'"),
    ("a zone that is no text", flow(node(), schedules=[{"cron": "* * * * *", "timezone": 1}]), "schedules: in place 1: timezone 1 is not a place's"),
    ("an interval that is none", flow(node(), schedules=[{"every": "soon"}]), "schedules: in place 1: every('soon') is not a duration; give seconds, or a string like '30s', '5m' or '2h'"),
    ("an interval that is true", flow(node(), schedules=[{"every": True}]), "schedules: in place 1: every(True) is not a duration"),
    ("an interval that is too short", flow(node(), schedules=[{"every": 0.5}]), "schedules: in place 1: every(0.5) is too often; an interval is at least one second"),
    ("an anchor that is no moment", flow(node(), schedules=[{"every": 60, "anchor": "noon"}]), "schedules: in place 1: anchor='noon' is not a moment; one reads like 2030-01-31T06:00+01:00"),
    ("inputs of a schedule that are no object", flow(node(), schedules=[{"every": 60, "inputs": [1]}]), "schedules: in place 1: inputs: the parameters must be an object of names and values"),
    ("an unknown input of a schedule", flow(node(), schedules=[{"every": 60, "inputs": {"lr": 1}}]), "schedules: in place 1: inputs: lr: there is no such parameter; there are: none"),
    ("a schedule that lacks an input", flow(node(), inputs=["lr"], schedules=[{"every": 60}]), "schedules: in place 1: inputs: lr: is missing"),
    ("an input of a schedule of another type", flow(node(), inputs=[{"name": "n", "type": "int"}], schedules=[{"every": 60, "inputs": {"n": "x"}}]), "schedules: in place 1: inputs: n: must be a whole number"),
    ("a schedule twice", flow(node(), schedules=[{"every": 60}, {"every": "1m"}]), "schedules: in place 2: it is the same as the one in place 1"),
    ("a node that is no object", flow("train"), "nodes: the node in place 1 must be an object"),
    ("a node without id", flow({"type": "python"}), "nodes: the id None in place 1 must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,62}"),
    ("two nodes of one id", flow(node("a"), node("a")), "node 'a': another node has this id"),
    ("an unknown type", flow({"id": "a", "type": "shell"}), "node 'a': there is no type 'shell'; there are: python, service"),
    ("no type", flow({"id": "a"}), "node 'a': there is no type None; there are: python, service"),
    ("an unknown field of a node", flow(node(gpu=1)), "node 'n': there is no field 'gpu'; there are: device, device_policy, duration_timeout, id, provides, requires, resources, runs_on, settings, source, timeout, type"),
    ("a service without a command", flow(service(command=[])), 'node \'llm\': command must be a list of words, such as ["python", "-m", "http.server"]; no shell reads it'),
    ("a service with a line for a command", flow(service(command="serve it")), "node 'llm': command must be a list of words; no shell reads it"),
    ("a service whose port is none", flow(service(port=70000)), "node 'llm': port must be a whole number from 1 to 65535; leave it out for a free one"),
    ("a service whose port is text", flow(service(port="80")), "node 'llm': port must be a whole number"),
    ("a service that is told no port", flow({"id": "llm", "type": "service", "command": ["serve"], "provides": ["url"]}), "node 'llm': it needs a port, or {port} in its command to be told a free one"),
    ("a service whose health is no path", flow(service(health="health")), "node 'llm': health must be a path such as '/health', or None to ask nothing"),
    ("a service with numbers in env", flow(service(env={"A": 1})), "node 'llm': env must have text for A, without NUL"),
    ("a service with weights that are none", flow(service(weights="sha256:x")), "node 'llm': weights must be a saved artifact, or its digest such as 'sha256:…'"),
    ("a service that names weights and has none", flow(service(command=["serve", "{weights}"])), "node 'llm': its command names {weights}, and it has none"),
    ("a service that provides nothing", flow(service(provides=[])), "node 'llm': a service provides one name, its address, which is of type str and no stream"),
    ("a service that provides two names", flow(service(provides=["a", "b"])), "node 'llm': a service provides one name, its address, which is of type str and no stream"),
    ("a service that provides a stream", flow(service(provides=[stream("url")])), "node 'llm': a service provides one name, its address, which is of type str and no stream"),
    ("a service that requires", flow(service(requires=["x"]), inputs=["x"]), "node 'llm': there is no field 'requires'; there are: command, device, device_policy, env, health, health_timeout, id, port, provides, resources, runs_on, secrets, start_timeout, stop_timeout, type, weights"),
    ("a service with a name that no service has", flow(service("LLM")), "node 'LLM': the name of a service matches [a-z0-9][a-z0-9._-]{0,62}, not 'LLM'"),
    ("a service of an unknown resource", flow(service(resources={"tpus": 1})), "node 'llm': there is no resources field 'tpus'; there are: cpus, flavor, gpus, ram"),
    ("a service with an odd time", flow(service(stop_timeout="soon")), "node 'llm': stop_timeout is not a duration; give seconds, or a string like '30s', '5m' or '2h'"),
    ("no source", flow({"id": "a", "type": "python"}), "node 'a': source must be text with a function process"),
    ("a source too long", flow(node(source="#" * (SOURCE_CHARS_MAX + 1))), "node 'n': source has 262145 characters, and may have 262144"),
    ("half a character", flow(node(source="x = '\ud800'")), "node 'n': source must be Unicode text"),
    ("requires is no list", flow(node(requires="x")), "node 'n': requires must be a list of names"),
    ("requires what is no name", flow(node(requires=["a b"])), "node 'n': requires: 'a b' is no name that a parameter can have"),
    ("requires twice", flow(node(source=takes("x"), requires=["x", "x"]), inputs=["x"]), "node 'n': requires 'x' twice"),
    ("requires what nobody provides", flow(node(source=takes("x"), requires=["x"])), "node 'n': requires 'x', which is no input and no node provides"),
    ("requires with an unknown field", flow(node("a", takes("x"), requires=[{"name": "x", "type": "int"}]), inputs=["x"]), "node 'a': requires: 'x' has no field 'type'; there are: name, stream"),
    ("requires a stream that is no flag", flow(node("a", takes("x"), requires=[{"name": "x", "stream": 1}]), inputs=["x"]), "node 'a': requires: stream of 'x' must be true or false"),
    ("requires an object without a name", flow(node("a", requires=[{"stream": True}])), "node 'a': requires: {'stream': True} is no name that a parameter can have"),
    ("reads an input as a stream", flow(node("a", takes("x"), requires=[stream("x")]), inputs=["x"]), "node 'a': reads 'x' as a stream, which is an input of the flow"),
    ("reads as a stream what is none", flow(node("a", provides=["x"]), node("b", takes("x"), requires=[stream("x")])), "node 'b': reads 'x' as a stream, which node 'a' provides without stream"),
    ("reads a stream that nobody has", flow(node("a", takes("x"), requires=[stream("x")])), "node 'a': requires 'x', which is no input and no node provides"),
    ("provides is no list", flow(node(provides="x")), "node 'n': provides must be a list"),
    ("provides what is no name", flow(node(provides=[{"name": 1}])), "node 'n': provides: {'name': 1} has no name that a parameter can have"),
    ("provides an unknown type", flow(node(provides=[{"name": "x", "type": "tensor"}])), "node 'n': provides: 'x' has the type 'tensor'; there are: any, artifact, bool, dict, float, int, list, str"),
    ("provides with an unknown field", flow(node(provides=[{"name": "x", "unit": "s"}])), "node 'n': provides: 'x' has no field 'unit'; there are: name, stream, type"),
    ("a stream that is no flag", flow(node(provides=[{"name": "x", "stream": "yes"}])), "node 'n': provides: stream of 'x' must be true or false"),
    ("two providers", flow(node("a", provides=["x"]), node("b", provides=["x"])), "node 'b': provides 'x', which is provided by node 'a' already"),
    ("a provider of an input", flow(node(provides=["x"]), inputs=["x"]), "node 'n': provides 'x', which is an input of the flow already"),
    ("a node that takes from itself", flow(node(source=takes("x"), requires=["x"], provides=["x"])), "node 'n': waits for itself: n → n"),
    (
        "a cycle",
        flow(
            node("a", takes("z"), requires=["z"], provides=["x"]),
            node("b", takes("x"), requires=["x"], provides=["y"]),
            node("c", takes("y"), requires=["y"], provides=["z"]),
        ),
        "node 'b': waits for itself: a → b → c → a",
    ),
    ("an undeclared key", flow(node(source="def process():\n yield {'loss': 1, 'acc': 2}", provides=[stream("loss")])), "node 'n': yields 'acc', which it does not declare"),
    ("a key that is no stream", flow(node(source="def process():\n yield {'loss': 1}", provides=["loss"])), "node 'n': yields 'loss', which it provides without stream"),
    ("a yield that is no dict", flow(node(source="def process():\n yield 3", provides=[stream("loss")])), "node 'n': process() may yield only dicts, as in yield {'loss': 0.3}"),
    ("a stream nobody yields", flow(node(provides=[stream("loss")])), "node 'n': provides the stream 'loss', and process() yields nothing"),
    ("no entry", flow(node(source="x = 1")), "node 'n': source needs a function process, or exactly one public function; it has none"),
    ("two entries", flow(node(source="def a(): pass\ndef b(): pass")), "node 'n': source needs a function process, or exactly one public function; it has a, b"),
    ("an undeclared key of an async entry", flow(node(source="async def process():\n yield {'loss': 1, 'acc': 2}", provides=[stream("loss"), "weights"])), "node 'n': yields 'acc', which it does not declare"),
    ("an async entry whose stream nobody yields", flow(node(source="async def process(): pass", provides=[stream("loss")])), "node 'n': provides the stream 'loss', and process() yields nothing"),
    ("an async entry with a parameter too many", flow(node(source="async def process(x): pass")), "node 'n': process() takes 'x', which the node does not require"),
    ("a parameter too few", flow(node(requires=["x"]), inputs=["x"]), "node 'n': process() has no parameter 'x', which the node requires"),
    ("a parameter too many", flow(node(source=takes("x"))), "node 'n': process() takes 'x', which the node does not require"),
    ("a parameter by place", flow(node(source="def process(x, /): pass", requires=["x"]), inputs=["x"]), "node 'n': process() takes 'x' by place only"),
    ("device", flow(node(device=3)), "node 'n': device must be a label or a list of labels"),
    ("a device that is no label", flow(node(device=["a b"])), "node 'n': device must be a label such as 'gpu' or 'zone=eu', or a list of them"),
    ("device_policy", flow(node(device="gpu", device_policy="maybe")), "node 'n': device_policy must be one of require, prefer"),
    ("device_policy alone", flow(node(device_policy="prefer")), "node 'n': device_policy is for nodes that ask for a machine, with device, runs_on or a size"),
    ("runs_on", flow(node(runs_on="")), "node 'n': runs_on must be any, server, worker or a worker's name"),
    ("timeout", flow(node(timeout=[1])), "node 'n': timeout must be seconds or text such as '2h'"),
    ("timeout of nothing", flow(node(timeout=0)), "node 'n': timeout must be more than nothing; leave it out for no limit"),
    ("timeout that is true", flow(node(timeout=True)), "node 'n': timeout must be seconds or text such as '2h'"),
    ("duration_timeout", flow(node(duration_timeout=-1)), "node 'n': duration_timeout is not a duration; it is at least 0 seconds and finite"),
    ("resources", flow(node(resources=[])), "node 'n': resources must be an object"),
    ("an unknown resource", flow(node(resources={"gpu": 1})), "node 'n': there is no resources field 'gpu'; there are: cpus, flavor, gpus, ram"),
    ("cpus", flow(node(resources={"cpus": 1.5})), "node 'n': resources.cpus must be a whole number"),
    ("no cpus", flow(node(resources={"cpus": 0})), "node 'n': cpus must be a whole number, at least 1; leave it out to ask for none"),
    ("ram", flow(node(resources={"ram": "much"})), "node 'n': ram "),
    ("flavor", flow(node(resources={"flavor": "A B"})), "node 'n': flavor must be the name of one; `farhand flavors list` shows them"),
    ("settings", flow(node(settings="retries")), "node 'n': settings must be an object"),
    ("an unknown setting", flow(node(settings={"process": True})), "node 'n': there is no settings field 'process'; there are: crash_retries, durable, isolated, priority, retries, retry_delay, secrets, strict_lease, tags"),
    ("retries", flow(node(settings={"retries": "2"})), "node 'n': settings.retries must be a whole number"),
    ("secrets", flow(node(settings={"secrets": [1]})), "node 'n': secrets must be names that match [a-z0-9][a-z0-9._-]{0,62}, not 1"),
    ("priority alone", flow(node(settings={"priority": 3})), "node 'n': priority is for nodes that ask for a machine, with device, runs_on or a size"),
]  # fmt: skip


@pytest.mark.fault("4.20")
@pytest.mark.parametrize(("document", "said"), [pytest.param(d, s, id=i) for i, d, s in MISTAKES])
def test_a_mistake_is_named_with_its_node(document: Any, said: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read(document)
    messages = [mistake["message"] for mistake in caught.value.details["mistakes"]]
    assert any(message.startswith(said) for message in messages), messages
    named = [mistake["node"] for mistake in caught.value.details["mistakes"] if mistake["node"]]
    assert all(f"node {id!r}: " in str(caught.value) for id in named)


def test_schedules_are_read_with_the_inputs_of_the_runs_they_start() -> None:
    timed = [
        {"cron": "0  6 * * *", "timezone": "Europe/Berlin", "inputs": {"n": 3}},
        {"every": "15m", "anchor": "2030-01-01T00:00Z"},
    ]
    document = read(flow(node(), inputs=[{"name": "n", "type": "int", "default": 1}], schedules=timed))
    assert [planned.described() for planned in document.schedules] == [
        {
            "place": 1,
            "spec": {"kind": "cron", "expr": "0 6 * * *", "tz": "Europe/Berlin"},
            "params": {"n": 3},
        },
        {"place": 2, "spec": {"kind": "every", "seconds": 900.0, "anchor": 1893456000.0}, "params": {}},
    ]


@pytest.mark.fault("4.20")
def test_all_mistakes_are_told_at_once() -> None:
    document = flow(node("a", requires=["x"], device=1), node("a"), outputs=["y"], more=1)
    with pytest.raises(InvalidDocument) as caught:
        read(document)
    assert len(caught.value.details["mistakes"]) == 6


@pytest.mark.fault("4.21")
@pytest.mark.parametrize(
    "document",
    [
        flow(node(ODD)),
        flow(node(), inputs=[ODD]),
        flow(node(), inputs=[{"name": ODD}]),
        flow(node(), inputs=[{"name": "a", "type": ODD}]),
        flow(node(), outputs=[ODD]),
        flow(node(), **{ODD: 1}),
        flow(node(**{ODD: 1})),
        flow({"id": "a", "type": ODD}),
        flow(node(requires=[ODD])),
        flow(node(provides=[ODD])),
        flow(node(provides=[{"name": "x", "type": ODD}])),
        flow(node(device=ODD)),
        flow(node(device="gpu", device_policy=ODD)),
        flow(node(runs_on=ODD)),
        flow(node(timeout=ODD)),
        flow(node(duration_timeout=ODD)),
        flow(node(resources={"flavor": ODD})),
        flow(node(resources={"ram": ODD})),
        flow(node(resources={ODD: 1})),
        flow(node(settings={ODD: 1})),
        flow(node(settings={"secrets": ODD})),
        flow(node(settings={"tags": [ODD]})),
        flow(node(settings={"retry_delay": ODD})),
    ],
)
def test_an_odd_name_is_refused_in_every_field_that_has_names(document: Given) -> None:
    with pytest.raises(InvalidDocument):
        read(document)


@pytest.mark.fault("4.21")
def test_an_odd_description_and_default_are_text_like_any_other() -> None:
    given = flow(node(), description=ODD, inputs=[{"name": "a", "type": "str", "default": ODD}])
    document = read(given)
    assert document.description == " ".join(ODD.split())
    assert document.graph.inputs[0].default == ODD


def test_the_timeout_of_a_node_is_silence() -> None:
    (read_node,) = read(flow(node(timeout="2h", duration_timeout=7200, resources={"ram": "8G"}))).nodes
    assert read_node.options.silence_timeout_s == 7200
    assert read_node.options.timeout_s == 7200
    assert read_node.options.ram_mb == 8192
    assert read_node.options.places


@pytest.mark.parametrize(
    "source",
    [
        "def process(x, y=1): return x",
        "def process(**given): return 1",
        "def only(x): return x\ndef _private(): pass",
        "from elsewhere import process",
        "from elsewhere import *",
        "process = lambda x: x",
        "import functools\n@functools.cache\ndef process(*a): return 1",
        "if True:\n def process(x): return x\nelse:\n def process(x): return x",
        "this is no Python, here",
        "def process(x):\n  def inner():\n    yield 3\n  return inner",
        "x = '\0'",
        "(" * 100_000,
    ],
)
def test_what_only_running_a_source_would_tell_is_left_to_that(source: str) -> None:
    assert read(flow(node(source=source, requires=["x"]), inputs=["x"])).nodes[0].source == source


def test_nodes_are_ordered_by_what_they_take() -> None:
    document = read(
        flow(
            node("last", takes("b", "c"), requires=["b", "c"]),
            node("second", takes("a"), requires=["a"], provides=["b"]),
            node("first", takes("i"), requires=["i"], provides=["a"]),
            node("alone", provides=["c"]),
            inputs=["i"],
        )
    )
    assert [member.id for member in document.graph.ordered()] == ["first", "alone", "second", "last"]


def test_a_deep_chain_is_read_without_recursion() -> None:
    nodes = [node("n0", provides=["v0"])]
    nodes += [
        node(f"n{i}", takes(f"v{i - 1}"), requires=[f"v{i - 1}"], provides=[f"v{i}"]) for i in range(1, 500)
    ]
    assert len(read(flow(*nodes[::-1])).graph.ordered()) == 500


def test_a_service_is_read_as_python_would_describe_it() -> None:
    words = ["python", ODD, "{port}"]
    given = service(command=words, env={"A": ODD}, device="gpu", resources={"gpus": 1}, health=None)
    found = read(flow(given, node(source=takes("url"), requires=["url"])))
    (llm, _) = found.nodes
    assert llm.service is not None
    described = llm.service.described()
    assert described["spec"]["command"] == words
    assert described["spec"]["env"] == {"A": ODD}
    assert described["spec"]["health"] is None
    assert (described["ask"]["labels"], described["ask"]["gpus"]) == (["gpu"], 1)
    assert found.graph.providers() == {"url": "llm"}
