"""Parameters with several values on the command line: ``lr=0.1,0.01`` and ``seed=1..5``. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import Usage
from .params import read_params, split

COMBINATIONS_MAX = 10_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.([1-9]\d*))?")
_OPENING, _CLOSING = "[{(", "]})"


def combinations(schema: Mapping[str, Any], given: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of the values given, the last parameter changing fastest.

    Each value is read as the flow's JSON schema says. Raises `Usage` for more than `COMBINATIONS_MAX`, and
    what `read_params` does.
    """
    several = {name: values_of(text) for name, text in split(given).items()}
    count = math.prod(len(texts) for texts in several.values())
    if count > COMBINATIONS_MAX:
        raise Usage(f"that is {count:,} runs; a sweep has at most {COMBINATIONS_MAX:,}")
    read = {
        name: [read_params(schema, [f"{name}={text}"])[name] for text in texts]
        for name, texts in several.items()
    }
    return [dict(zip(read, values, strict=True)) for values in itertools.product(*read.values())]


def values_of(text: str) -> list[str]:
    """The values in a text: parts between commas, and of those a range ``1..5`` (``0..100..10``) as numbers.

    Commas within brackets or quotes part nothing.
    """
    return [value for part in _parts(text) for value in _expand(part)]


def _parts(text: str) -> list[str]:
    parts, begin, depth, quoted = [], 0, 0, False
    for at, character in enumerate(text):
        if character == '"' and (at == 0 or text[at - 1] != "\\"):
            quoted = not quoted
        elif quoted:
            continue
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _expand(part: str) -> list[str]:
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        return [part]
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if abs(last - first) // step >= COMBINATIONS_MAX:
        raise Usage(f"{part} has more than {COMBINATIONS_MAX:,} values")
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [str(number) for number in numbers]
