"""Identifiers that sort by the time they were made: 26 characters of ``0-9a-z``, never reused."""

from __future__ import annotations

import os
import time
from typing import Callable, Optional

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
"""Two characters for every 10 bits."""

_RANDOM_BYTES = 10
_AT_ONCE_BYTES = 2000
_LENGTH = 26


def new_id(now: Optional[float] = None, random: Callable[[int], bytes] = os.urandom) -> str:
    """A new identifier: 48 bits of milliseconds since the epoch, then 80 random bits."""
    moment_ms = int((time.time() if now is None else now) * 1000)
    number = (moment_ms << 8 * _RANDOM_BYTES) | int.from_bytes(random(_RANDOM_BYTES), "big")
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


class Random:
    """Random bytes, asked of the system a few kilobytes at a time. Not for a process that forks."""

    def __init__(self) -> None:
        self._bytes = b""

    def __call__(self, count: int) -> bytes:
        """The next ones; none is given out twice."""
        if len(self._bytes) < count:
            self._bytes = os.urandom(_AT_ONCE_BYTES)
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken


def is_id(text: str) -> bool:
    """Whether this could be an identifier."""
    return len(text) == _LENGTH and set(text) <= set(_ALPHABET)


def first_id(at: float) -> str:
    """What sorts before every identifier made at or after a moment, and after all made before."""
    return new_id(max(0.0, at), lambda count: bytes(count))
