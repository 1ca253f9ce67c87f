"""Metric points: one row a batch, the points as JSON text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..model import MetricPoint, Page
from .database import Database
from .guard import Connection
from .parts import among


class Metrics:
    """Reads the points of a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, run_id: str, after: int = 0, limit: int = 1000, keys: Sequence[str] | None = None
    ) -> Page[MetricPoint]:
        """Points with numbers above ``after``, in order; by ``keys``, only of those flows in it."""
        sql, given = among(keys, "SELECT first_number, points FROM metrics", "last_number")

        def read(connection: Connection) -> Page[MetricPoint]:
            points: list[MetricPoint] = []
            cursor = connection.execute(sql, (run_id, after, *given, limit + 1))  # a row has a point
            for first, text in cursor:
                for number, (at, values, task) in enumerate(json.loads(text), first):
                    if number > after:
                        points.append(MetricPoint(number, at, values, task))
                if len(points) > limit:
                    return Page(points[:limit], str(points[limit - 1].number))
            return Page(points)

        return await self._database.read(read)


def append_points(
    connection: Connection, run: str, points: list[tuple[Any, ...]], nested: str | None = None
) -> None:
    """Add a batch of points, each (at, values, task), after those the run has."""
    row = connection.execute(
        "SELECT last_number FROM metrics WHERE run = ? ORDER BY last_number DESC LIMIT 1", (run,)
    ).fetchone()
    last = 0 if row is None else int(row[0])
    text = json.dumps(points, separators=(",", ":"))  # unlike msgspec it carries NaN and infinity
    connection.execute(
        "INSERT INTO metrics (run, last_number, first_number, points, nested) VALUES (?, ?, ?, ?, ?)",
        (run, last + len(points), last + 1, text, nested),
    )
