"""Artifacts: files that runs saved. The content lies in the blobs, under its digest."""

from __future__ import annotations

from collections.abc import Sequence

from farhand_worker import protocol

from ..model import Artifact
from .database import Database
from .guard import Connection
from .parts import among
from .rows import ARTIFACTS

_ALL = 2**31


class Artifacts:
    """Reads the artifacts of a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, run_id: str, keys: Sequence[str] | None = None) -> list[Artifact]:
        """The artifacts of a run, oldest first; ``keys``: only those of these flows called inside of it."""
        sql, values = among(keys, f"SELECT {ARTIFACTS.columns} FROM artifacts", "id")
        return await self._database.read(
            lambda connection: [
                ARTIFACTS.load(row) for row in connection.execute(sql, (run_id, 0, *values, _ALL)).fetchall()
            ]
        )


def add_artifact(connection: Connection, run: str, event: protocol.Artifact) -> None:
    """Note a file that a run saved."""
    connection.execute(
        "INSERT INTO artifacts (run, name, digest, size, media_type, created_at, task, nested)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (run, event.name, event.digest, event.size, event.media_type, event.at, event.task, event.nested),
    )
