"""The document of a declared flow, read strictly: every mistake is found, and named with its node.

Nothing of a node's source is run or compiled here. What can be said of it by reading alone is in `reading`.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from farhand.errors import FarhandError, InvalidDocument, InvalidParameters

from . import timetables
from .annotations import kind_of
from .graphs import ID, TYPES, Graph, Input, Member, Mistake, Output, is_value_name, mistakes_of, shortened
from .options import Options, refuse_without_place
from .reading import mistakes_in
from .services import Service
from .timetables import Placed

Given = Dict[str, Any]
Judge = Callable[[str, Member], List[str]]

NODES_MAX = 500
SOURCE_CHARS_MAX = 256 * 1024
NAMED_MAX = 20
"""So many mistakes are told in the sentence of the refusal; all of them are in its details."""

TOP = ("description", "inputs", "nodes", "outputs", "schedules")


class Node(NamedTuple):
    """A node: its place in the graph, what it runs, and what it asks of the machine."""

    member: Member
    type: str
    source: str
    options: Options
    service: Optional[Service] = None


class Document(NamedTuple):
    """A declared flow, checked."""

    description: str
    graph: Graph
    nodes: Tuple[Node, ...]
    schedules: Tuple[Placed, ...] = ()


class Field(NamedTuple):
    """A field of a node: the JSON types that it may have, and the option that it sets."""

    types: Tuple[type, ...]
    words: str
    option: str = ""


NUMBER = (int, float)
ASKING: Dict[str, Field] = {
    "device": Field((str, list), "a label or a list of labels", "device"),
    "device_policy": Field((str,), "text", "device_policy"),
    "runs_on": Field((str,), "text", "runs_on"),
    "timeout": Field((*NUMBER, str), "seconds or text such as '2h'", "silence_timeout"),
    "duration_timeout": Field((*NUMBER, str), "seconds or text such as '2h'", "timeout"),
    "resources": Field((dict,), "an object"),
    "settings": Field((dict,), "an object"),
}
"""What any node that runs somewhere may ask for. Its ``timeout`` is silence, as such documents mean it."""

RESOURCES: Dict[str, Field] = {
    "cpus": Field((int,), "a whole number", "cpus"),
    "gpus": Field((int,), "a whole number", "gpus"),
    "ram": Field((*NUMBER, str), "megabytes or text such as '8G'", "ram"),
    "flavor": Field((str,), "text", "flavor"),
}
SETTINGS: Dict[str, Field] = {
    "retries": Field((int,), "a whole number", "retries"),
    "retry_delay": Field((*NUMBER, str, list), "seconds, text such as '30s', or a list", "retry_delay"),
    "crash_retries": Field((int,), "a whole number", "crash_retries"),
    "priority": Field((int,), "a whole number", "priority"),
    "isolated": Field((bool,), "true or false", "isolated"),
    "strict_lease": Field((bool,), "true or false", "strict_lease"),
    "durable": Field((bool,), "true or false", "durable"),
    "secrets": Field((str, list), "a name or a list of names", "secrets"),
    "tags": Field((str, list), "a name or a list of names", "tags"),
}


class Reader:
    """Collects mistakes while a document is read."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.mistakes: List[Mistake] = []

    def say(self, node: Optional[str], message: str) -> None:
        """Something is wrong with a node, or with the flow's own fields."""
        place = "" if node is None else f"node {node!r}: "
        self.mistakes.append(Mistake(node, place + message))

    def unknown(self, node: Optional[str], given: Given, known: Sequence[str], what: str = "field") -> None:
        """Refuse what has no meaning here: nothing is accepted and ignored."""
        for name in given:
            if name not in known:
                self.say(node, f"there is no {what} {shortened(name)}; there are: {', '.join(sorted(known))}")

    def fields(self, node: str, given: Given, known: Dict[str, Field], prefix: str = "") -> Given:
        """The options that fields set, those of the wrong type left out."""
        options: Given = {}
        for name, field in known.items():
            if name not in given:
                continue
            if not _is_of(given[name], field.types):
                self.say(node, f"{prefix}{name} must be {field.words}")
            elif field.option:
                options[field.option] = given[name]
        return options

    def within(self, node: str, item: Given, name: str, known: Dict[str, Field]) -> Given:
        """The options that the fields of an object set, which is itself the field ``name`` of a node."""
        inner = item.get(name)
        if not isinstance(inner, dict):
            return {}
        self.unknown(node, inner, tuple(known), f"{name} field")
        return self.fields(node, inner, known, f"{name}.")

    def inputs(self, given: Any) -> List[Input]:
        """The inputs of a flow."""
        if not isinstance(given, list):
            self.say(None, "inputs must be a list")
            return []
        return [found for item in given if (found := _input(self, item)) is not None]

    def names(self, node: Optional[str], field: str, given: Any) -> List[str]:
        """The names of values."""
        if not isinstance(given, list):
            self.say(node, f"{field} must be a list of names")
            return []
        for name in given:
            if not is_value_name(name):
                self.say(node, f"{field}: {shortened(name)} is no name that a parameter can have")
        return [name for name in given if is_value_name(name)]

    def requires(self, node: str, given: Any) -> Tuple[List[str], List[str]]:
        """The names that a node takes, and those of them that it reads along."""
        if not isinstance(given, list):
            return self.names(node, "requires", given), []
        found = [_required(self, node, item) for item in given]
        along = [name for name, stream in found if stream and is_value_name(name)]
        return self.names(node, "requires", [name for name, _ in found]), list(dict.fromkeys(along))

    def provides(self, node: str, given: Any) -> List[Output]:
        """The outputs of a node."""
        if not isinstance(given, list):
            self.say(node, "provides must be a list")
            return []
        return [found for item in given if (found := _output(self, node, item)) is not None]


def read(given: Any, judge: Judge = mistakes_in) -> Document:
    """The document of a declared flow. Raises `InvalidDocument` with every mistake.

    ``judge`` says what is wrong with a source.
    """
    reader = Reader(judge)
    if not isinstance(given, dict):
        raise refusal([Mistake(None, "the document must be an object with nodes")])
    reader.unknown(None, given, TOP)
    description = given.get("description", "")
    if not isinstance(description, str):
        reader.say(None, "description must be text")
    inputs = reader.inputs(given.get("inputs", []))
    nodes = _nodes(reader, given.get("nodes"))
    outputs = reader.names(None, "outputs", given.get("outputs", []))
    planned = timetables.read(given.get("schedules", []), inputs, lambda text: reader.say(None, text))
    graph = Graph(tuple(inputs), tuple(node.member for node in nodes), tuple(outputs))
    mistakes = [*reader.mistakes, *mistakes_of(graph)]
    if mistakes:
        raise refusal(mistakes, planned)
    return Document(" ".join(description.split()), graph, tuple(nodes), tuple(planned))


def refusal(mistakes: Sequence[Mistake], planned: Sequence[Placed] = ()) -> InvalidDocument:
    """The exception for a document with these mistakes; its schedules are still to be judged."""
    told = "; ".join(mistake.message for mistake in mistakes[:NAMED_MAX])
    more = f"; and {len(mistakes) - NAMED_MAX} more" if len(mistakes) > NAMED_MAX else ""
    listed = [mistake._asdict() for mistake in mistakes]
    return InvalidDocument(told + more, mistakes=listed, schedules=[each.described() for each in planned])


def _is_of(value: Any, types: Tuple[type, ...]) -> bool:
    """Whether a JSON value is of one of the types; true and false are no numbers."""
    return isinstance(value, types) and (not isinstance(value, bool) or bool in types)


# ---------------------------------------------------------------- inputs and outputs


def _input(reader: Reader, item: Any) -> Optional[Input]:
    shape = {"name": item} if isinstance(item, str) else item
    if not isinstance(shape, dict) or not is_value_name(shape.get("name")):
        reader.say(None, f"inputs: {shortened(item)} has no name that a parameter can have")
        return None
    name, word = shape["name"], shape.get("type", "any")
    for field in shape:
        if field not in ("name", "type", "default"):
            reader.say(
                None, f"inputs: {name!r} has no field {shortened(field)}; there are: default, name, type"
            )
    if not _is_type(word):
        reader.say(None, f"inputs: {name!r} has the type {shortened(word)}; there are: {', '.join(TYPES)}")
        return Input(name)
    if "default" not in shape:
        return Input(name, word)
    try:
        kind_of(TYPES[word]).convert(shape["default"], name)
    except InvalidParameters as error:
        reader.say(None, f"inputs: the default of {name!r} is no {word}: {error}")
        return Input(name, word)
    return Input(name, word, shape["default"])


def _is_type(word: Any) -> bool:
    return isinstance(word, str) and word in TYPES


def _required(reader: Reader, node: str, item: Any) -> Tuple[Any, bool]:
    """The name that is taken, and whether it is read along."""
    if not isinstance(item, dict) or "name" not in item:
        return item, False
    name, stream = item["name"], item.get("stream", False)
    for field in item:
        if field not in ("name", "stream"):
            reader.say(
                node, f"requires: {shortened(name)} has no field {shortened(field)}; there are: name, stream"
            )
    if not isinstance(stream, bool):
        reader.say(node, f"requires: stream of {shortened(name)} must be true or false")
    return name, stream is True


def _output(reader: Reader, node: str, item: Any) -> Optional[Output]:
    shape = {"name": item} if isinstance(item, str) else item
    if not isinstance(shape, dict) or not is_value_name(shape.get("name")):
        reader.say(node, f"provides: {shortened(item)} has no name that a parameter can have")
        return None
    name, word, stream = shape["name"], shape.get("type", "any"), shape.get("stream", False)
    for field in shape:
        if field not in ("name", "type", "stream"):
            reader.say(
                node, f"provides: {name!r} has no field {shortened(field)}; there are: name, stream, type"
            )
    if not _is_type(word):
        reader.say(node, f"provides: {name!r} has the type {shortened(word)}; there are: {', '.join(TYPES)}")
        word = "any"
    if not isinstance(stream, bool):
        reader.say(node, f"provides: stream of {name!r} must be true or false")
        stream = False
    return Output(name, word, stream)


# ---------------------------------------------------------------- nodes


def _nodes(reader: Reader, given: Any) -> List[Node]:
    if not isinstance(given, list) or not given:
        reader.say(None, "nodes must be a list with at least one node")
        return []
    if len(given) > NODES_MAX:
        reader.say(None, f"there are {len(given)} nodes, and may be {NODES_MAX}")
        return []
    return [
        found for number, item in enumerate(given, 1) if (found := _node(reader, number, item)) is not None
    ]


def _node(reader: Reader, number: int, item: Any) -> Optional[Node]:
    if not isinstance(item, dict):
        reader.say(None, f"nodes: the node in place {number} must be an object")
        return None
    node = item.get("id")
    if not isinstance(node, str) or not ID.fullmatch(node):
        reader.say(None, f"nodes: the id {shortened(node)} in place {number} must match {ID.pattern}")
        return None
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in NODE_TYPES:
        reader.say(node, f"there is no type {shortened(kind)}; there are: {', '.join(sorted(NODE_TYPES))}")
        return None
    reader.unknown(node, item, ("id", "type", *NODE_TYPES[kind].fields))
    return NODE_TYPES[kind].read(reader, node, item)


def _python(reader: Reader, node: str, item: Given) -> Optional[Node]:
    """A node of Python source."""
    requires, along = reader.requires(node, item.get("requires", []))
    provides = reader.provides(node, item.get("provides", []))
    member = Member(node, tuple(requires), tuple(provides), along=tuple(along))
    source = item.get("source")
    if not isinstance(source, str) or not source.strip():
        reader.say(node, "source must be text with a function process")
        source = ""
    elif len(source) > SOURCE_CHARS_MAX:
        reader.say(node, f"source has {len(source)} characters, and may have {SOURCE_CHARS_MAX}")
    elif not _is_unicode(source):
        reader.say(node, "source must be Unicode text")
    else:
        for message in reader.judge(source, member):
            reader.say(node, message)
    options = _options(reader, node, item)
    return Node(member, "python", source, options)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def _options(reader: Reader, node: str, item: Given) -> Options:
    options = reader.fields(node, item, ASKING)
    options.update(reader.within(node, item, "resources", RESOURCES))
    options.update(reader.within(node, item, "settings", SETTINGS))
    try:
        found = Options(options)
        refuse_without_place(found, options)
    except (FarhandError, TypeError, ValueError, OverflowError) as error:
        reader.say(node, _of_document(str(error)))
        return Options({})
    return found


_CALLED: Dict[str, str] = {"silence_timeout": "timeout", "timeout": "duration_timeout"}
"""Options → what such documents call them."""

_TASK = re.compile(r"@task\((\w+)=…\) is for tasks")


def _of_document(message: str) -> str:
    """A refusal of the options in the words of the document."""
    first, _, rest = _TASK.sub(r"\1 is for nodes", message).partition(" ")
    return f"{_CALLED.get(first, first)} {rest}"


HOSTING: Dict[str, Field] = {
    "command": Field((list,), "a list of words; no shell reads it", "command"),
    "port": Field((int,), "a whole number", "port"),
    "health": Field((str, type(None)), "a path such as '/health', or null to ask nothing", "health"),
    "env": Field((dict,), "an object of text", "env"),
    "secrets": Field((str, list), "a name or a list of names", "secrets"),
    "weights": Field((str,), "the digest of an artifact, such as 'sha256:…'", "weights"),
    "stop_timeout": Field((*NUMBER, str), "seconds or text such as '10s'", "stop_timeout"),
    "start_timeout": Field((*NUMBER, str), "seconds or text such as '10m'", "start_timeout"),
    "health_timeout": Field((*NUMBER, str), "seconds or text such as '3s'", "health_timeout"),
    **{name: ASKING[name] for name in ("device", "device_policy", "runs_on", "resources")},
}
"""What a node that is a service says of it: as ``Service(…)`` in Python."""


def _service(reader: Reader, node: str, item: Given) -> Optional[Node]:
    """A node that is a server process: it provides its address."""
    provides = reader.provides(node, item.get("provides", []))
    if len(provides) != 1 or provides[0].stream or provides[0].type not in ("any", "str"):
        reader.say(node, "a service provides one name, its address, which is of type str and no stream")
        return None
    given = reader.fields(node, item, HOSTING)
    given.update(reader.within(node, item, "resources", RESOURCES))
    try:
        service = Service(node, given.pop("command", None), **given, provides=provides[0].name)
    except (FarhandError, TypeError, ValueError, OverflowError) as error:
        reader.say(node, str(error).replace(f"service {node!r}: ", "", 1))
        return None
    member = Member(node, (), (provides[0]._replace(type="str"),), "service")
    return Node(member, "service", "", Options({}), service)


class NodeType(NamedTuple):
    """A type of node: its fields, and what reads one."""

    fields: Tuple[str, ...]
    read: Callable[[Reader, str, Given], Optional[Node]]


NODE_TYPES: Dict[str, NodeType] = {
    "python": NodeType(("source", "requires", "provides", *ASKING), _python),
    "service": NodeType(("provides", *HOSTING), _service),
}
"""The types of nodes; another is another row."""
