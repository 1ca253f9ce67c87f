"""Copies of a SQLite store: taken while it is written to, and made a store of its own again."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ..errors import StoreFailed
from .migrate import packaged, refuse_newer

PAGES = 256
"""How much is copied in one step; between steps other threads have their turn."""


def snapshot(source: Path, target: Path) -> None:
    """Copy the store as it is at one moment to ``target``, which appears complete or not at all.

    The copy is read in one transaction of a connection that cannot write, so writers neither wait for it
    nor make it begin anew; the write-ahead log is not cut down meanwhile.
    """
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        uri = f"file:{quote(str(source))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as reading:
            reading.execute("BEGIN")
            reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
            with closing(sqlite3.connect(partial)) as copy:
                reading.backup(copy, pages=PAGES, sleep=0.0)
                _refuse_damaged(copy)
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        partial.replace(target)
    except sqlite3.Error as error:
        raise StoreFailed(f"the store could not be copied ({error}); nothing was changed") from error
    finally:
        partial.unlink(missing_ok=True)


def _refuse_damaged(copy: sqlite3.Connection) -> None:
    """A copy of a damaged store is worse than none: it would take the place of a sound one."""
    found = str(copy.execute("PRAGMA quick_check(1)").fetchone()[0])
    if found != "ok":
        said = " ".join(found.split())
        raise StoreFailed(f"the store is damaged ({said}); no copy was kept: restore an earlier one")


def adopt(path: Path) -> str:
    """Make a copy a store of its own: checked, and with a new incarnation, which is returned.

    Raises `StoreFailed` when it is damaged, `StoreTooNew` when a newer farhand made it.
    """
    try:
        refuse_newer(path, packaged("sqlite"))
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("PRAGMA quick_check").fetchone()[0]
            if found != "ok":
                raise StoreFailed(f"the store in this backup is damaged: {found}")
            incarnation = secrets.token_hex(8)
            connection.execute("UPDATE meta SET incarnation = ?", (incarnation,))
            connection.commit()
    except sqlite3.Error as error:
        raise StoreFailed(f"the store in this backup is damaged: {error}") from error
    return incarnation
