"""Brings a store to the newest schema: numbered files, each in one transaction, after a backup.

The number of the last migration is SQLite's ``user_version``, which changes with the transaction that
ran it. So a process killed anywhere in between finds the store either before or after a migration.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from ..errors import StoreFailed, StoreTooNew

log = logging.getLogger("farhand")

_COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file: ``0001_initial.sql``."""

    number: int
    name: str
    sql: str


def packaged(dialect: str = "sqlite") -> list[Migration]:
    """The migrations that come with farhand, in order."""
    directory = resources.files(__name__.rpartition(".")[0]) / "migrations" / dialect
    files = sorted((f for f in directory.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [Migration(int(f.name[:4]), f.name, f.read_text("utf-8")) for f in files]


def version_of(path: Path) -> int:
    """The schema version of the store in a file, read without touching it; 0 when there is none."""
    if not path.exists() or path.stat().st_size == 0:
        return 0
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def refuse_newer(path: Path, migrations: Sequence[Migration]) -> None:
    """Raise `StoreTooNew` when the file holds a store that these migrations do not lead to."""
    found, known = version_of(path), migrations[-1].number
    if found > known:
        raise StoreTooNew(
            f"{path} was written by a newer farhand (schema {found}, this one knows {known}); "
            "upgrade this one. Nothing was changed.",
            found=found,
            known=known,
        )


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    migrations: Sequence[Migration],
    *,
    without_backup: bool = False,
) -> None:
    """Run what is missing, after a backup unless told otherwise.

    ``connection`` is in autocommit mode and the only one that writes.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    missing = [migration for migration in migrations if migration.number > version]
    if missing and version > 0 and not without_backup:
        log.info("the store is of schema %s and is copied before it is upgraded", version)
        back_up(connection, path.with_name(f"{path.name}.schema-{version}.backup"))
    for migration in missing:
        if version > 0:
            log.info("the store is upgraded by %s, the last is %s", migration.name, missing[-1].name)
        _run(connection, migration)


def back_up(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the whole store to ``target``, which appears complete or not at all."""
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(partial)) as copy:
        connection.backup(copy)
    with open(partial, "rb") as written:
        os.fsync(written.fileno())
    partial.replace(target)


def statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: running it whole would commit what is under way."""
    statement = ""
    *pieces, rest = script.split(";")
    for piece in pieces:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):  # it knows strings, comments and triggers
            yield statement.strip()
            statement = ""
    rest = _COMMENT.sub("", statement + rest).strip()
    if rest:
        raise StoreFailed(f"a migration ends in the middle of a statement: {rest[:60]}")


def _run(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("PRAGMA foreign_keys = OFF")  # tables may be rebuilt; checked below instead
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements(migration.sql):
            connection.execute(statement)
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise StoreFailed(f"migration {migration.name} leaves a row of {broken[0]} without its parent")
        connection.execute(f"PRAGMA user_version = {migration.number}")
        connection.execute("COMMIT")
    except BaseException:  # all of a migration, or nothing of it
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    finally:
        connection.execute("PRAGMA foreign_keys = ON")
