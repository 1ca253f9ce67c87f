"""A PostgreSQL of our own: a cluster in a temporary directory, run by an unprivileged user."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

UNPRIVILEGED = "nobody"
_FAST = (
    *("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off"),
    *("-c", "max_connections=60", "-c", "listen_addresses=127.0.0.1", "-c", "logging_collector=off"),
)


def programs() -> Path | None:
    """Where initdb and postgres are; Debian keeps them off the path."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3].zfill(4)
    )
    return versions[-1].parent if versions else None


class Cluster:
    """One PostgreSQL server process and its databases."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self._directory = directory
        self._binaries = binaries
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def initialize(self) -> None:
        """Make the cluster's files."""
        self._run("initdb", "-D", str(self._data), "-U", "farhand", "-A", "trust", "-E", "UTF8",
                  "--locale=C.UTF-8", "--no-sync")  # fmt: skip

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port),
                 "-k", str(self._directory), *_FAST],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_environment(),
                preexec_fn=_end_with_parent,
                **_unprivileged(),
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while True:
            try:
                self.execute("SELECT 1")
                return
            except Exception:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        """End it: SIGINT fast, SIGQUIT as in a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def url(self, database: str) -> str:
        """The address of a database."""
        return f"postgresql://farhand@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        """Run one statement in a connection of its own; its rows, if any.

        Where nobody answers, the error says what became of the server and shows the end of its log.
        """
        import psycopg

        try:
            connection = psycopg.connect(self.url(database), autocommit=True, connect_timeout=5)
        except psycopg.OperationalError as error:
            raise ConnectionError(f"{error}\n{self.condition()}") from error
        with connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def condition(self) -> str:
        """Whether the server runs, how it ended if it did, and the last it logged."""
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        return f"PostgreSQL in {self._directory} {self._fate()}; its log ends:\n{log[-2000:]}"

    def _fate(self) -> str:
        if self._process is None:
            return "is not started, or was stopped by a test"
        code = self._process.poll()
        if code is None:
            return f"runs as process {self._process.pid}"
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"has ended {how} (it was process {self._process.pid}), and no test stopped it"

    def database(self, template: str = "template0") -> str:
        """The address of a new database."""
        self._made += 1
        name = f"farhand{self._made}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} {self._copying}")
        return self.url(name)

    @cached_property
    def _copying(self) -> str:
        """From 15 on a copy goes through the write-ahead log unless told otherwise, at twice the cost."""
        [(version,)] = self.execute("SHOW server_version_num")
        return "STRATEGY file_copy" if int(version) >= 150000 else ""

    @property
    def _log(self) -> Path:
        return self._directory / "log"

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            capture_output=True,
            text=True,
            env=_environment(),
            **_unprivileged(),
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running cluster, gone at the end. `programs` must have found one."""
    binaries = programs()
    assert binaries is not None
    with tempfile.TemporaryDirectory(prefix="farhand-pg-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        if os.geteuid() == 0:
            shutil.chown(directory, UNPRIVILEGED)
        running = Cluster(directory, binaries)
        running.initialize()
        running.start()
        try:
            yield running
        finally:
            running.stop()


_started = ExitStack()
"""The shared cluster, once it runs."""


@cache
def shared() -> Cluster:
    """The one cluster of this test session, started by the first test that needs it."""
    atexit.register(_close_here, _started, os.getpid())
    return _started.enter_context(cluster())


def end() -> None:
    """End the shared cluster, if a test needed it. One process of many that test never comes to `atexit`."""
    _started.close()


def _close_here(stack: ExitStack, pid: int) -> None:
    """End what the test session started; a child that it forked, and that ends, ends nothing."""
    if os.getpid() == pid:
        stack.close()


@cache
def migrated() -> str:
    """A database of the shared cluster that is as the migrations leave it, to copy."""
    from farhand.store import postgresql
    from farhand.store.migrate import packaged

    url = shared().database()
    name = url.rpartition("/")[2]
    postgresql.open_writing(url, packaged("postgresql"), None).close()
    return name


@contextmanager
def lent() -> Iterator[str]:
    """A database of the shared cluster that is as the migrations leave it, emptied afterwards and lent again.

    To make and remove one for each test takes longer than most of the tests.
    """
    url = _spare.pop() if _spare else shared().database(migrated())
    yield url
    if _emptied(url):
        _spare.append(url)


_spare: list[str] = []


def _emptied(url: str) -> bool:
    """Whether a database could be made what it was; not while somebody still has a connection to it."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        others = connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        if others.fetchone() is not None:
            return False
        filled = " UNION ALL ".join(
            f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in _tables()
        )
        used = {table for (table,) in connection.execute(filled.encode())} | _counting()
        connection.execute(f"TRUNCATE {', '.join(sorted(used))} RESTART IDENTITY CASCADE".encode())
        for table, rows in _left_by_migrations().items():
            again = f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, %s)"
            connection.execute(again.encode(), [rows])
    return True


@cache
def _tables() -> frozenset[str]:
    """The tables of a migrated database but the one that says which migrations have run."""
    named = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_migrations'"
    return frozenset(name for (name,) in shared().execute(named, migrated()))


@cache
def _counting() -> frozenset[str]:
    """Those that number their rows: the numbers begin anew, also where no row is left."""
    identity = "SELECT table_name FROM information_schema.columns WHERE is_identity = 'YES'"
    return frozenset(name for (name,) in shared().execute(identity, migrated()))


@cache
def _left_by_migrations() -> dict[str, str]:
    """The rows that are in a migrated database, as JSON by table."""
    found = {
        table: shared().execute(f"SELECT json_agg(t)::text FROM {table} t", migrated())[0][0]
        for table in _tables()
    }
    return {table: rows for table, rows in found.items() if rows}


def _environment() -> dict[str, str]:
    """No mark of the deployment that happens to be up: who clears that away kills all that carries it."""
    return {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ} | {"LANG": "C.UTF-8"}


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """A test session that is killed runs no cleanup; its cluster ends all the same. Linux only."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to be run by root."""
    if os.geteuid() != 0:
        return {}
    import grp
    import pwd

    user = pwd.getpwnam(UNPRIVILEGED)
    return {"user": user.pw_uid, "group": grp.getgrgid(user.pw_gid).gr_gid, "extra_groups": [], "cwd": "/"}
