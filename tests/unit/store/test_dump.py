"""An upgrade of a PostgreSQL store begins with a dump of it, or does not begin."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from farhand.errors import Usage
from farhand.store import Store
from farhand.store.dump import dump
from farhand.store.migrate import packaged
from tests.lab import postgresql
from tests.lab.postgresql import Cluster
from tests.optional import need

pytestmark = pytest.mark.anyio

OLDER = 6


@pytest.fixture
def cluster() -> Cluster:
    """The shared cluster."""
    need("PostgreSQL")
    return postgresql.shared()


@pytest.fixture
def older(cluster: Cluster) -> str:
    """The address of a store as an older version left it, with a flow in it."""
    from farhand.store import postgresql as dialect

    url = cluster.database()
    dialect.open_writing(url, packaged("postgresql")[:OLDER], None).close()
    cluster.execute("INSERT INTO deletions (flow, last_run, asked_at) VALUES ('etl', '0', 1.0)", _name(url))
    return url


def _name(url: str) -> str:
    return url.rpartition("/")[2]


def restored(file: Path, url: str) -> None:
    program = shutil.which("pg_restore")
    assert program is not None
    command = [program, "--clean", "--if-exists", "--dbname", url, str(file)]
    subprocess.run(command, check=True, capture_output=True)


def schema_of(cluster: Cluster, url: str) -> int:
    return cluster.execute("SELECT max(number) FROM schema_migrations", _name(url))[0][0]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for pg_dump, and is all that there is on the path."""
    path = tmp_path / "bin" / "pg_dump"
    path.parent.mkdir()
    monkeypatch.setenv("PATH", str(path.parent))
    return path


def stand_in(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


async def test_a_store_is_dumped_before_it_is_upgraded_and_can_be_had_back(
    cluster: Cluster, older: str, tmp_path: Path
) -> None:
    await (await Store.open(tmp_path / "home" / "farhand.db", url=older)).close()
    assert schema_of(cluster, older) == packaged("postgresql")[-1].number
    (saved,) = (tmp_path / "home").glob("*.dump")
    assert (saved.name, saved.stat().st_mode & 0o777) == (f"postgresql.schema-{OLDER}.dump", 0o600)
    again = cluster.database()
    restored(saved, again)
    assert schema_of(cluster, again) == OLDER
    assert cluster.execute("SELECT flow FROM deletions", _name(again)) == [("etl",)]


async def test_an_upgrade_is_refused_without_a_dump_unless_told_otherwise(
    cluster: Cluster, older: str, tmp_path: Path, program: Path
) -> None:
    home = tmp_path / "home" / "farhand.db"
    with pytest.raises(Usage, match=r"no pg_dump here; .* --migrate-without-backup\. Nothing was changed\."):
        await Store.open(home, url=older)
    stand_in(program, "echo half; echo 'pg_dump: error: server version mismatch' >&2; exit 1")
    with pytest.raises(Usage, match=r"could not be dumped first \(pg_dump: error: server version mismatch\)"):
        await Store.open(home, url=older)
    assert schema_of(cluster, older) == OLDER
    await (await Store.open(home, url=older, without_backup=True)).close()
    assert schema_of(cluster, older) == packaged("postgresql")[-1].number
    assert [path.name for path in home.parent.iterdir() if "dump" in path.name] == []


async def test_a_new_store_and_one_of_this_version_need_no_dump(
    cluster: Cluster, tmp_path: Path, program: Path
) -> None:
    url = cluster.database()
    for _ in range(2):
        await (await Store.open(tmp_path / "home" / "farhand.db", url=url)).close()


def test_the_password_is_in_no_argument(tmp_path: Path, program: Path) -> None:
    need("PostgreSQL")
    stand_in(program, 'echo "$@"; echo "$PGPASSWORD"')
    dump("postgresql://me:geheim@db/x", "db/x", "public", tmp_path / "saved")
    arguments, password = (tmp_path / "saved").read_text().splitlines()
    assert password == "geheim"
    assert "geheim" not in arguments
    assert "user=me" in arguments
