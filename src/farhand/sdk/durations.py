"""Durations: a number of seconds, or a string with a unit (``"30s"``, ``"5m"``, ``"2h"``, ``"7d"``)."""

from __future__ import annotations

import re
from typing import Union

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)


def seconds(value: Union[int, float, str]) -> float:
    """The duration in seconds. Raises `ValueError` for what is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("is not a duration; give seconds, or a string like '30s', '5m' or '2h'")
    if isinstance(value, str):
        match = _PATTERN.fullmatch(value)
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError("is not a duration; give seconds, or a string like '30s', '5m' or '2h'")
        return float(match[1]) * _UNITS[match[2].lower()]
    if not 0 <= value < float("inf"):
        raise ValueError("is not a duration; it is at least 0 seconds and finite")
    return float(value)
