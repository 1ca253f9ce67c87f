"""Frames: which messages there are, and each as the text of one frame and back."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Callable, ClassVar, Dict, FrozenSet, List, NamedTuple, Sequence, Tuple, Type

from .. import compact
from . import to_server, to_worker
from .limits import ProtocolViolation


@dataclass(frozen=True)
class Several:
    """Messages in one frame, in their order, each as it would stand in a frame of its own.

    Only for a peer that has said in its `Hello` or `Welcome` that it reads this; none of them is a `Several`.
    """

    type: ClassVar[str] = "several"
    messages: List[Dict[str, Any]]


MESSAGES: Dict[str, Type[Any]] = {
    cls.type: cls
    for cls in (
        Several,
        to_server.Hello,
        to_server.Heartbeat,
        to_server.Accepted,
        to_server.Event,
        to_server.Request,
        to_server.Drained,
        to_server.Bye,
        to_server.Changed,
        to_worker.Compare,
        to_worker.Welcome,
        to_worker.Refused,
        to_worker.Assign,
        to_worker.Cancel,
        to_worker.Ack,
        to_worker.Reply,
        to_worker.Outcome,
        to_worker.Proceed,
        to_worker.Recall,
        to_worker.Fenced,
        to_worker.Set,
        to_worker.Probe,
        to_worker.Tunnel,
        to_server.NoTunnel,
    )
}


dumps: Callable[[Any], str] = compact.encoder()
"""Compact JSON text, ASCII only, so that lone surrogates survive as escapes."""

_NO_MESSAGE = (ValueError, KeyError, TypeError, RecursionError)
"""What goes wrong with a text that is none."""


def encode(message: Any) -> str:
    """One message as the text of one frame."""
    body = {name: getattr(message, name) for name in _FIELDS[message.type]}
    body["type"] = message.type
    return dumps(body)


def encode_events(job: str, lease: int, source: str, first: int, lines: List[str]) -> str:
    """An `Event` frame out of spool lines, which are JSON texts already and are not parsed again."""
    head = f'{{"type":"{to_server.Event.type}","job":{quoted(job)},"lease":{lease},"source":"{source}"'
    return f'{head},"first":{first},"events":[{",".join(lines)}]}}'


def encode_several(texts: Sequence[str]) -> str:
    """One frame out of the texts of one or more messages."""
    if len(texts) == 1:
        return texts[0]
    return '{"type":"several","messages":[' + ",".join(texts) + "]}"


def decode(text: str) -> Any:
    """The message in a frame. Raises `ProtocolViolation` when it is none of ours."""
    try:
        return _message(compact.parsed(text))
    except _NO_MESSAGE as error:
        raise _violation(text, error) from error


def decode_each(text: str) -> List[Any]:
    """The messages in a frame, those of a `Several` in their order. Raises `ProtocolViolation`."""
    try:
        body = compact.parsed(text)
        found = [_message(each) for each in (body["messages"] if body["type"] == Several.type else (body,))]
    except _NO_MESSAGE as error:
        raise _violation(text, error) from error
    if body["type"] == Several.type and Several in map(type, found):
        raise ProtocolViolation("a frame of several within another")
    return found


def _violation(text: str, error: Exception) -> ProtocolViolation:
    return ProtocolViolation(f"not a message of this protocol: {text[:80]!r} ({error})")


def _message(body: Dict[str, Any]) -> Any:
    """As the class would make it; that of a frozen one sets each field by a call. What is said besides the
    fields is no part of it, and is not looked at."""
    cls, required, same, made = _SHAPES[body["type"]]
    for name in required:
        body[name]
    found = {**same, **body}
    for name, make in made:
        if name not in found:
            found[name] = make()
    message = object.__new__(cls)
    object.__setattr__(message, "__dict__", found)
    return message


def as_dict(record: Any) -> Dict[str, Any]:
    """The fields of a `Held`, `Resume`, `Times` or event body, ready for JSON."""
    return asdict(record)


class _Shape(NamedTuple):
    """A class, the fields that its messages must have, the defaults of others, and of the rest what makes
    one."""

    cls: Type[Any]
    required: FrozenSet[str]
    same: Dict[str, Any]
    made: List[Tuple[str, Callable[[], Any]]]


def _shape(cls: Type[Any]) -> _Shape:
    return _Shape(
        cls,
        frozenset(each.name for each in fields(cls) if each.default is each.default_factory is MISSING),
        {each.name: each.default for each in fields(cls) if each.default is not MISSING},
        [(each.name, each.default_factory) for each in fields(cls) if each.default_factory is not MISSING],
    )


_SHAPES = {name: _shape(cls) for name, cls in MESSAGES.items()}
_FIELDS: Dict[str, List[str]] = {name: [f.name for f in fields(cls)] for name, cls in MESSAGES.items()}
