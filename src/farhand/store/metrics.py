"""Metric points: one row a batch, the points as JSON text."""

from __future__ import annotations

import json
from typing import Any

from ..model import MetricPoint, Page
from .database import Database
from .guard import Connection


class Metrics:
    """Reads the points of a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, run_id: str, after: int = 0, limit: int = 1000) -> Page[MetricPoint]:
        """Points with numbers above ``after``, in order."""

        def read(connection: Connection) -> Page[MetricPoint]:
            points: list[MetricPoint] = []
            cursor = connection.execute(
                "SELECT first_number, points FROM metrics WHERE run = ? AND last_number > ?"
                " ORDER BY last_number LIMIT ?",
                (run_id, after, limit + 1),  # a row has a point at least
            )
            for first, text in cursor:
                for number, (at, values, task) in enumerate(json.loads(text), first):
                    if number > after:
                        points.append(MetricPoint(number, at, values, task))
                if len(points) > limit:
                    return Page(points[:limit], str(points[limit - 1].number))
            return Page(points)

        return await self._database.read(read)


def append_points(connection: Connection, run: str, points: list[tuple[Any, ...]]) -> None:
    """Add a batch of points, each (at, values, task), after those the run has."""
    row = connection.execute(
        "SELECT last_number FROM metrics WHERE run = ? ORDER BY last_number DESC LIMIT 1", (run,)
    ).fetchone()
    last = 0 if row is None else int(row[0])
    text = json.dumps(points, separators=(",", ":"))  # unlike msgspec it carries NaN and infinity
    connection.execute(
        "INSERT INTO metrics (run, last_number, first_number, points) VALUES (?, ?, ?, ?)",
        (run, last + len(points), last + 1, text),
    )
