"""Sizes: a number of megabytes, or a string with a unit (``"512M"``, ``"8G"``); units are powers of 1024."""

from __future__ import annotations

import re
from typing import Union

Size = Union[int, float, str]
"""Megabytes, or text with a unit."""

_UNITS = {"": 2, "K": 1, "M": 2, "G": 3, "T": 4}
_MB = 1024**2
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)


def size_bytes(value: Size) -> int:
    """The size in bytes. Raises `ValueError` for what is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("is not a size; give megabytes, or a string like '512M' or '8G'")
    match = _PATTERN.fullmatch(str(value))
    if match is None:
        raise ValueError("is not a size; give megabytes, or a string like '512M' or '8G'")
    return int(float(match[1]) * 1024 ** _UNITS[match[2].upper()])


def size_mb_of(value: Size) -> int:
    """The size in whole megabytes, rounded up. Raises `ValueError` for what is not one."""
    return -(-size_bytes(value) // _MB)
