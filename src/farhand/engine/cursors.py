"""Cursors: where a page ended, as whoever asks for the next one says it. Anything else is refused."""

from __future__ import annotations

from ..errors import Usage
from ..sdk.ids import is_id

_WRONG = "cursor: it must be the `next` of the page before"
_DIGITS_MAX = 18
"""Any number of so many digits fits a column of 64 bits."""


def of_runs(cursor: str | None) -> str | None:
    """A page of runs ends at a run's id."""
    if cursor is not None and not is_id(cursor):
        raise Usage(_WRONG)
    return cursor


def of_entries(cursor: str | None) -> int | None:
    """A page of numbered entries ends at a number."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _DIGITS_MAX):
        raise Usage(_WRONG)
    return int(cursor)
