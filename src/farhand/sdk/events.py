"""The lines of a spool or journal, built by hand: ``["kind",{body}]``, with digests where there are any.

The kinds and fields are those of `farhand_worker.protocol`, whose dataclasses read them.
"""

from __future__ import annotations

import time
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Callable, Dict, List, Optional

from farhand_worker import compact

Body = Dict[str, Any]

now = time.time
"""Seconds since the epoch."""


dumps: Callable[[Any], str] = compact.encoder()
"""Compact JSON text, ASCII only."""


def line(kind: str, body: Body, digests: Optional[List[str]] = None) -> str:
    """The line of any event; fields that are None are left out."""
    text = dumps({name: value for name, value in body.items() if value is not None})
    return f'["{kind}",{text},{dumps(digests)}]\n' if digests else f'["{kind}",{text}]\n'


def log(
    at: float, text: str, stream: str, level: str, task: Optional[str], nested: Optional[str] = None
) -> str:
    """One line of output."""
    head = f'["log",{{"at":{at!r},"text":{quoted(text)},"stream":"{stream}","level":"{level}"'
    if nested is not None:
        head += f',"nested":"{nested}"'
    return f'{head},"task":"{task}"}}]\n' if task else head + "}]\n"


def members(more: Body) -> str:
    """What to put at the end of an object: its other fields; those that are None are left out."""
    return "".join(f',"{name}":{dumps(value)}' for name, value in more.items() if value is not None)


def task_began(
    key: str,
    name: str,
    at: float,
    scope: str,
    index: Optional[int],
    needs: Optional[List[str]] = None,
    more: str = "",
) -> str:
    """A call begins here; ``more`` are `members`."""
    place = "" if index is None else f',"index":{index}'
    if needs:
        place += f',"needs":{dumps(needs)}'
    return f'["task",{{"key":"{key}","name":{quoted(name)},"at":{at!r},"scope":"{scope}"{place}{more}}}]\n'


def started(at: float, where: str, name: Optional[str] = None, importing: bool = False) -> str:
    """User code begins; ``where`` are `members`, the same for all jobs of an engine."""
    called = "" if name is None else f',"name":{quoted(name)}'
    importing_too = ',"importing":true' if importing else ""
    return f'["started",{{"at":{at!r}{called}{importing_too}{where}}}]\n'


def completed(at: float, value: Body, digests: List[str]) -> str:
    """The result of a job that has returned."""
    tail = f",{dumps(digests)}]\n" if digests else "]\n"
    return f'["result",{{"state":"completed","at":{at!r},"value":{value_text(value)}}}{tail}'


def placed(
    key: str,
    step: str,
    args: Body,
    at: float,
    scope: str,
    index: Optional[int],
    more: str,
    digests: List[str],
) -> str:
    """A call is to run elsewhere; ``step`` are the `members` of all its calls, ``more`` those of this one."""
    place = "" if index is None else f',"index":{index}'
    tail = f",{dumps(digests)}]\n" if digests else "]\n"
    body = f'"key":"{key}"{step},"args":{value_text(args)},"at":{at!r},"scope":"{scope}"{place}{more}'
    return f'["call",{{{body}}}{tail}'


def value_text(body: Body) -> str:
    """The JSON text of a Value."""
    if len(body) == 2 and "text" in body:
        return f'{{"enc":"{body["enc"]}","text":{quoted(body["text"])}}}'
    return dumps(body)


def checkpoint(
    key: str,
    name: str,
    scope: str,
    index: Optional[int],
    began: float,
    ended: float,
    attempts: int,
    kept: bool,
    value: Optional[Body],
    digests: List[str],
    more: str = "",
) -> str:
    """A call has returned; ``more`` are `members`."""
    place = "" if index is None else f',"index":{index}'
    shown = "" if value is None else f',"value":{value_text(value)}'
    tail = f",{dumps(digests)}]\n" if digests else "]\n"
    return (
        f'["checkpoint",{{"key":"{key}","name":{quoted(name)},"state":"completed","started_at":{began!r},'
        f'"ended_at":{ended!r},"scope":"{scope}"{place},"attempts":{attempts},'
        f'"kept":{"true" if kept else "false"}{shown}{more}}}{tail}'
    )
