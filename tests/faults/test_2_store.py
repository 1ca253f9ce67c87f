"""What may happen to a store: full, damaged, newer, wanted twice, pruned, restored, restarted."""

from __future__ import annotations

import functools
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deployment import FAST, Deployment, Program, deployed, environment, free_port
from tests.harness.disks import small_disk
from tests.harness.processes import alive
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually, throughout
from tests.lab import postgresql


def server_on(home: Path, directory: Path, **more: str) -> Program:
    """A server that is started and left to itself."""
    arguments = ["-m", "farhand", "serve", "--port", str(free_port()), "--no-open", "--home", str(home)]
    program = Program("other", arguments, environment(home, FAST, **more), directory / "other.log", directory)
    program.start()
    return program


def sentence_of(program: Program, code: int) -> str:
    """What a server that refuses to start says: one line, and no traceback."""
    assert program.wait() == code, program.text()
    lines = [line for line in program.text().splitlines() if line.strip()]
    assert len(lines) == 1, program.text()
    assert lines[0].startswith("farhand: ")
    return lines[0]


@functools.cache
def _an_empty_store() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "farhand.db"
        code = "import asyncio, sys; from pathlib import Path; from farhand.store import Store\n"
        code += "async def make():\n    await (await Store.open(Path(sys.argv[1]))).close()\n"
        subprocess.run([sys.executable, "-c", code + "asyncio.run(make())", str(path)], check=True)
        return path.read_bytes()


def a_home(directory: Path) -> Path:
    """The home of a server that has run once."""
    home = directory / "home"
    home.mkdir(0o700)
    path = home / "farhand.db"
    path.touch(0o600)
    path.write_bytes(_an_empty_store())
    return home


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ------------------------------------------------------------ 2.22


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    with small_disk(tmp_path / "disk", 24) as target:
        yield target


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class _OnSmallDisk(Deployment):
    """A deployment whose home lies on the small disk."""

    def __init__(self, directory: Path, disk: Path) -> None:
        super().__init__(directory)
        self.home = disk / "home"
        self.server.environment["FARHAND_HOME"] = str(self.home)
        self.server.environment.pop("FARHAND_DATABASE", None)
        index = self.server.arguments.index("--home")
        self.server.arguments[index + 1] = str(self.home)


@pytest.mark.fault("2.22")
def test_runs_end_right_when_a_full_disk_has_room_again(tmp_path: Path, disk: Path, stack: ExitStack) -> None:
    """B127: the workers report again until it is recorded; nothing is finished but still running."""
    deployment = _OnSmallDisk(tmp_path, disk)
    os.environ["WITNESS_MARK"] = deployment.server.environment["WITNESS_MARK"] = str(tmp_path)
    try:
        deployment.start()
        proxy = stack.enter_context(closing(Proxy(deployment.port)))
        deployment.worker("box", url=proxy.url, parallel=3)
        gate, later, seen = tmp_path / "gate", tmp_path / "later", tmp_path / "seen"
        held = deployment.start_run("waiting_there", path=str(tmp_path / "held"), gate=str(later))
        runs = [deployment.start_run("waiting_there", path=str(seen), gate=str(gate)) for _ in range(2)]
        for run in [held, *runs]:
            deployment.wait_for_run(run, "running")
        engine = int((tmp_path / "held").read_text().split()[1])
        ballast = disk / "ballast"
        _fill(ballast)
        gate.touch()
        proxy.reset()  # the worker has to be let in again by a server that can store nothing
        refused = eventually(lambda: _refusals(deployment) or None, 20, "the server meets the full disk")
        assert refused
        assert {deployment.run(run)["state"] for run in runs} == {"running"}
        throughout(lambda: alive(engine), 2 * deployment.times.lease_s, "a lease goes on")
        ballast.unlink()
        later.touch()
        for run in [*runs, held]:
            ended = deployment.wait_for_run(run, "completed")
            assert ended["attempt"] == 1
        with closing(sqlite3.connect(deployment.home / "farhand.db")) as connection:
            assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
    finally:
        deployment.clear()
        os.environ.pop("WITNESS_MARK", None)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


def _refusals(deployment: Deployment) -> list[str]:
    return [
        line for line in deployment.server.text().splitlines() if "full" in line or "could not commit" in line
    ]


# ------------------------------------------------------------ 2.23, 2.24, 2.26


@pytest.mark.fault("2.23")
@pytest.mark.parametrize("damage", ["no database", "zeroed header", "first page", "cut off", "zeroed middle"])
def test_a_damaged_store_is_named_in_one_sentence_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    home = a_home(tmp_path)
    path = home / "farhand.db"
    content = bytearray(path.read_bytes())
    if damage == "no database":
        content[:16] = b"not a database!!"
    elif damage == "zeroed header":
        content[:100] = bytes(100)
    elif damage == "first page":
        content[100:4096] = b"\xff" * 3996
    elif damage == "cut off":
        del content[len(content) // 2 :]
    else:
        content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)
    before = digest(path)
    sentence = sentence_of(server_on(home, tmp_path, FARHAND_DATABASE=""), 1)
    assert "is damaged" in sentence
    assert "farhand restore" in sentence
    assert digest(path) == before


@pytest.mark.fault("2.23")
def test_a_page_that_was_flipped_in_the_middle_is_named_and_a_backup_brings_it_back(tmp_path: Path) -> None:
    home = a_home(tmp_path)
    path = home / "farhand.db"
    _fill_with_old_runs(path, 200)
    saved = tmp_path / "backup.tar"
    _farhand("backup", str(saved), "--home", str(home))
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(byte ^ 0xFF for byte in content[middle : middle + 4096])
    path.write_bytes(content)
    before = digest(path)
    assert "is damaged" in sentence_of(server_on(home, tmp_path, FARHAND_DATABASE=""), 1)
    examined = _run_farhand("doctor", "--home", str(home))
    assert examined.returncode == 1
    assert "error: store:" in examined.stdout
    refused = _run_farhand("backup", str(tmp_path / "again.tar"), "--home", str(home))
    assert (refused.returncode, (tmp_path / "again.tar").exists()) == (3, False)
    assert "malformed" in refused.stderr or "the store is damaged" in refused.stderr
    assert digest(path) == before
    _farhand("restore", str(saved), "--home", str(tmp_path / "restored"))
    assert _old_runs(tmp_path / "restored" / "farhand.db") == 200
    assert _run_farhand("doctor", "--home", str(tmp_path / "restored")).returncode == 0


@pytest.mark.fault("2.23")
@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
def test_of_a_write_ahead_log_that_was_cut_off_the_whole_commits_are_taken(
    tmp_path: Path, left: float
) -> None:
    home = a_home(tmp_path)
    path, copy = home / "farhand.db", tmp_path / "copy" / "farhand.db"
    copy.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for number in range(50):
            connection.execute("INSERT INTO variables VALUES (?, '1', 1.0, 'anna')", (f"v{number:02}",))
        for suffix in ("", "-wal"):
            content = path.with_name(path.name + suffix).read_bytes()
            cut = int(len(content) * left) if suffix else len(content)
            copy.with_name(copy.name + suffix).write_bytes(content[:cut])
    copy.chmod(0o600)
    examined = _run_farhand("doctor", "--home", str(copy.parent))
    assert examined.returncode == 0, examined.stdout
    with closing(sqlite3.connect(copy)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM variables ORDER BY name")]
    assert names == [f"v{number:02}" for number in range(len(names))]
    assert (len(names) == 0) == (left == 0.0)
    assert len(names) < 50


@pytest.mark.fault("2.24")
def test_a_newer_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """B122."""
    home = a_home(tmp_path)
    path = home / "farhand.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 9999")
    before = digest(path)
    sentence = sentence_of(server_on(home, tmp_path, FARHAND_DATABASE=""), 2)
    assert "newer farhand" in sentence
    assert digest(path) == before


@pytest.mark.fault("2.26")
def test_a_second_server_on_a_home_is_refused_and_the_first_goes_on(deployment: Deployment) -> None:
    run = deployment.start_run("ticking", path=str(deployment.directory / "ticks"), seconds=2.0)
    other = server_on(deployment.home, deployment.directory)
    assert f"process {deployment.server.pid} " in sentence_of(other, 3)
    assert deployment.wait_for_run(run, "completed")["attempt"] == 1


@pytest.mark.fault("2.26")
def test_a_second_server_on_a_database_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with deployed(tmp_path, dialect="postgresql") as first:
        run = first.start_run("ticking", path=str(tmp_path / "ticks"), seconds=2.0)
        other = server_on(
            tmp_path / "b", tmp_path, FARHAND_DATABASE=first.server.environment["FARHAND_DATABASE"]
        )
        assert f"process {first.server.pid}, uses" in sentence_of(other, 3)
        assert first.wait_for_run(run, "completed")["attempt"] == 1


def test_a_restart_of_postgresql_strands_no_run(tmp_path: Path) -> None:
    """B020: what was queued, running and ending meanwhile is all recorded afterwards."""
    with deployed(tmp_path, dialect="postgresql") as deployment:
        witness = str(tmp_path / "w")
        runs = [deployment.start_run("three_steps", path=witness) for _ in range(20)]
        eventually(lambda: deployment.run(runs[2])["state"] == "completed", 30)
        postgresql.shared().stop()
        postgresql.shared().start()
        for run in runs:
            assert deployment.wait_for_run(run)["state"] == "completed"


# ------------------------------------------------------------ 2.28


@pytest.mark.fault("2.28")
def test_a_million_rows_are_pruned_while_runs_go_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    a_home(tmp_path)
    rows = _fill_with_old_runs(home / "farhand.db", 8000)
    assert rows >= 1_000_000
    done = threading.Event()
    with deployed(tmp_path, dialect="sqlite") as deployment:
        ended = 0
        while not done.is_set():
            run = deployment.start_run("three_steps", path=str(tmp_path / "w"))
            assert deployment.wait_for_run(run)["state"] == "completed"
            ended += 1
            if _old_runs(home / "farhand.db") == 0:
                done.set()
        assert ended >= 3
        assert _old_rows(home / "farhand.db") == 0
        assert len(deployment.items("/runs", limit=1000)) == ended


_TABLES = {"logs": 50, "metrics": 10, "task_runs": 40, "events": 20, "artifacts": 5}


def _fill_with_old_runs(path: Path, runs: int) -> int:
    """Runs that ended in 1970, each with more than a hundred rows; how many rows there are."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        runs_sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})"
        connection.execute(
            "CREATE TEMP TABLE old AS " + runs_sql.format(runs) + " SELECT printf('00%08d', i) AS id FROM n"
        )
        connection.execute(
            "CREATE TEMP TABLE k AS " + runs_sql.format(max(_TABLES.values())) + " SELECT i FROM n"
        )
        for table in ("runs", *_TABLES):
            columns = {
                row[1]: row[2]
                for row in connection.execute(f"PRAGMA table_info({table})")
                if row[3] or row[1] in ("id", "run", "ended_at")
            }
            many = table != "runs"
            columns.pop("id", None) if many else None
            values = [_value(table, name, kind) for name, kind in columns.items()]
            source = f"old, k WHERE k.i <= {_TABLES[table]}" if many else "old"
            connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {source}"
            )
        connection.commit()
        return sum(connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("runs", *_TABLES))


def _value(table: str, name: str, kind: str) -> str:
    special: dict[str, Any] = {"run": "old.id", "id": "old.id", "flow": "'old'", "state": "'completed'"}
    if name in ("last_number", "first_number", "number"):
        return "k.i"
    if name == "key" and table != "runs":
        return "'k' || k.i"
    if name in ("lines", "points"):
        return "'[]'"
    return special.get(name, "'{}'" if kind == "TEXT" else "1")


def _old_runs(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM runs WHERE flow = 'old'").fetchone()[0])


def _old_rows(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return sum(
            int(connection.execute(f"SELECT count(*) FROM {t} WHERE run LIKE '00%'").fetchone()[0])
            for t in _TABLES
        )


# ------------------------------------------------------------ backup


def test_a_backup_of_a_working_server_is_a_home_that_works(tmp_path: Path) -> None:
    file, restored, gate = tmp_path / "backup.tar", tmp_path / "second" / "home", tmp_path / "gate"
    with deployed(tmp_path, dialect="sqlite") as deployment:
        first = deployment.start_run("three_steps", path=str(tmp_path / "w"))
        deployment.wait_for_run(first, "completed")
        under_way = deployment.start_run("waiting", gate=str(gate))
        deployment.wait_for_run(under_way, "running")
        _farhand("backup", str(file), "--home", str(deployment.home))
        gate.touch()
        deployment.wait_for_run(under_way, "completed")
    restored.parent.mkdir()
    _farhand("restore", str(file), "--home", str(restored))
    with deployed(restored.parent, dialect="sqlite") as again:
        assert again.run(first)["state"] == "completed"
        ended = again.wait_for_run(under_way, "completed")
        assert ended["attempt"] == 2, "the attempt that the copy shows under way is not believed"


def _farhand(*arguments: str) -> None:
    done = _run_farhand(*arguments)
    assert done.returncode == 0, done.stderr


def _run_farhand(*arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FARHAND_")}
    command = [sys.executable, "-m", "farhand", *arguments]
    return subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
