"""The part of what belongs to a run that comes from flows called inside of it, by the keys of their calls."""

from __future__ import annotations

from collections.abc import Sequence

from .guard import Variants
from .rows import to_json

_AMONG = Variants(
    sqlite=" AND nested IN (SELECT value FROM json_each(?))",
    postgresql=" AND nested IN (SELECT jsonb_array_elements_text(?::jsonb))",
)


def among(
    keys: Sequence[str] | None, select: str, number: str, in_state: bool = False, paged: bool = True
) -> tuple[Variants, tuple[str, ...]]:
    """A page of ``select`` by (run, after, limit), of all that a run has or of some flows; and their value.

    ``number`` is the column that orders it. The value goes before that of the state, where one is asked for,
    and the limit. What is not ``paged`` has no order and no limit.
    """
    head = f"{select} WHERE run = ? AND {number} > ?"
    tail = (" AND state = ?" if in_state else "") + (f" ORDER BY {number} LIMIT ?" if paged else "")
    if keys is None:
        return Variants(head + tail, head + tail), ()
    return Variants(head + _AMONG.sqlite + tail, head + _AMONG.postgresql + tail), (to_json(list(keys)),)
