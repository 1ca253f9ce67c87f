"""Frames: which messages there are, and each as the text of one frame and back."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Callable, ClassVar, Dict, List, Sequence, Tuple, Type

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
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProtocolViolation(f"not a message of this protocol: {text[:80]!r} ({error})") from error


def each_of(message: Any) -> List[Any]:
    """The messages in a `Several`, or the one that it is. Raises `ProtocolViolation`."""
    if not isinstance(message, Several):
        return [message]
    try:
        found = [_message(body) for body in message.messages]
    except (KeyError, TypeError) as error:
        raise ProtocolViolation(f"a frame of several holds what is no message ({error})") from error
    if any(isinstance(each, Several) for each in found):
        raise ProtocolViolation("a frame of several within another")
    return found


def _message(body: Dict[str, Any]) -> Any:
    """As the class would make it; that of a frozen one sets each field by a call."""
    cls, required, optional = _SHAPES[body["type"]]
    found = {name: body[name] for name in required}
    for name, default in optional:
        found[name] = body[name] if name in body else default()
    message = object.__new__(cls)
    message.__dict__.update(found)
    return message


def as_dict(record: Any) -> Dict[str, Any]:
    """The fields of a `Held`, `Resume`, `Times` or event body, ready for JSON."""
    return asdict(record)


def _shape(cls: Type[Any]) -> Tuple[Type[Any], List[str], List[Tuple[str, Callable[[], Any]]]]:
    """A class, the fields that its messages must have, and the others with what makes their default."""
    required: List[str] = []
    optional: List[Tuple[str, Callable[[], Any]]] = []
    for each in fields(cls):
        if each.default is not MISSING:
            optional.append((each.name, partial(_same, each.default)))
        elif each.default_factory is not MISSING:
            optional.append((each.name, each.default_factory))
        else:
            required.append(each.name)
    return cls, required, optional


def _same(value: Any) -> Any:
    return value


_SHAPES = {name: _shape(cls) for name, cls in MESSAGES.items()}
_FIELDS: Dict[str, List[str]] = {name: [f.name for f in fields(cls)] for name, cls in MESSAGES.items()}
