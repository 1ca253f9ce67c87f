"""How values are read from an option, a variable and a file of settings alike.

Each reader takes text, or what a TOML file may hold, and raises `ValueError` with the end of a sentence.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Tuple, Union, cast

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_MEGABYTES = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def text(value: Any) -> str:
    """Any text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is no text")
    return value.strip()


def count(value: Any) -> int:
    """A whole number from 0."""
    return _whole(value, 0)


def slots(value: Any) -> int:
    """A whole number from 1."""
    return _whole(value, 1)


def _whole(value: Any, least: int) -> int:
    digits = str(value).strip()
    if isinstance(value, bool) or not digits.isdigit() or not digits.isascii() or int(digits) < least:
        raise ValueError(f"is no whole number from {least}")
    return int(digits)


def port(value: Any) -> int:
    """A port; 0 is a free one."""
    number = count(value)
    if number > 65535:
        raise ValueError("is not a port between 0 and 65535")
    return number


def seconds(value: Any) -> float:
    """A duration of some length: seconds, or text with a unit."""
    match = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip())
    if match is None or match[2].lower() not in _SECONDS or not float(match[1]):
        raise ValueError("is no duration; give more than 0 seconds, or text like '30s', '5m' or '2h'")
    return float(match[1]) * _SECONDS[match[2].lower()]


def megabytes(value: Any) -> int:
    """A size: megabytes, or text with a unit."""
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("is no size; give megabytes, or text like '512M' or '8G'")
    return int(float(match[1]) * _MEGABYTES[match[2].upper()])


def size_bytes(value: Any) -> int:
    """A size: bytes, or text with a unit."""
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("is no size; give bytes, or text like '512M' or '8G'")
    return int(float(match[1]) * (_MEGABYTES[match[2].upper()] * 2**20 if match[2] else 1))


def switch(value: Any) -> bool:
    """On or off."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in _YES | _NO:
        raise ValueError("is neither true nor false")
    return word in _YES


def labels(value: Any) -> List[str]:
    """Labels: a list, ``a,b``, or a table (``zone = "eu"`` is ``zone=eu``, ``gpu = true`` is ``gpu``)."""
    if isinstance(value, dict):
        return [_label(name, said) for name, said in cast(Dict[str, Any], value).items() if said is not False]
    return words(value)


def words(value: Any) -> List[str]:
    """A list of texts, or one text with commas."""
    return _listed(value, ",")


def paths(value: Any) -> List[str]:
    """Absolute paths: a list, or one text with what separates paths in ``PATH``."""
    found = _listed(value, os.pathsep)
    for path in found:
        if not os.path.isabs(path):
            raise ValueError(f"has {path!r}, which is no absolute path")
    return [os.path.normpath(path) for path in found]


def variables(value: Any) -> List[str]:
    """Names of environment variables."""
    found = words(value)
    for name in found:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"has {name!r}, which is the name of no variable")
    return found


def _listed(value: Any, separator: str) -> List[str]:
    items: Union[List[Any], Tuple[Any, ...]] = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(item, str) for item in items):
        raise ValueError("is no list of texts")
    return [part.strip() for item in items for part in str(item).split(separator) if part.strip()]


def _label(name: str, said: Any) -> str:
    if said is True:
        return name
    if not isinstance(said, str) or not said:
        raise ValueError(f"says {said!r} of {name}; a label is true, or has a text")
    return f"{name}={said}"
