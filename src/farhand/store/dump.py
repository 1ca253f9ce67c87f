"""A dump of a PostgreSQL store before it is upgraded, by PostgreSQL's own program."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from psycopg import conninfo

from ..errors import Usage

PROGRAM = "pg_dump"
_TOLD = "dump the database yourself and start once with --migrate-without-backup. Nothing was changed."


def dump(url: str, name: str, schema: str, target: Path) -> None:
    """Dump the schema of a database to ``target``, for pg_restore; it appears whole or not at all.

    ``name`` is the database's, for people. Raises `Usage` where that cannot be done.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise Usage(
            f"{name} must be upgraded and would be dumped first, but there is no {PROGRAM} here; install the"
            f" client programs of PostgreSQL, or {_TOLD}"
        )
    given: dict[str, Any] = dict(conninfo.conninfo_to_dict(url))
    # Arguments are for everybody on this machine to read.
    password = given.pop("password", None)
    environment = os.environ if password is None else {**os.environ, "PGPASSWORD": str(password)}
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            done = subprocess.run(
                [
                    program,
                    "--format=custom",
                    f'--schema="{schema}"',
                    "--dbname",
                    conninfo.make_conninfo(**given),
                ],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.PIPE,
                env=environment,
                check=False,
            )
            os.fsync(file.fileno())
        if done.returncode != 0:
            raise Usage(
                f"{name} must be upgraded and could not be dumped first ({_last_line(done.stderr)});"
                f" mend that, or {_TOLD}"
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"{PROGRAM} said nothing"
