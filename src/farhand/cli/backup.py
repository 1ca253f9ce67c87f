"""``farhand backup`` and ``farhand restore``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from ..errors import StoreLocked, Unreachable, Usage
from ..sizes import size
from .home import home_of
from .options import home_option, insecure_option, json_option, url_option
from .output import print_json


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
@url_option
@home_option
@insecure_option
def backup(file: Path, as_json: bool, url: str | None, home: Path | None, insecure: bool) -> None:
    """Copy the store, its files and keys to FILE, while runs go on.

    The file holds the server's keys: keep it as secret as the home. A PostgreSQL database is backed up by
    pg_dump instead.
    """
    if file.exists():
        raise Usage(f"{file} is there already; choose another name")
    if url is not None or "FARHAND_URL" in os.environ or not _back_up_offline(file, home_of(home)):
        from .client import find

        with find(url, home, insecure) as client, client.stream("POST", "/backup") as pieces:
            _write(file, pieces)
    size_bytes = file.stat().st_size
    if as_json:
        print_json({"file": str(file), "size": size_bytes})
    else:
        click.echo(f"{file} holds the store as it was a moment ago, {size(size_bytes)}")


def _back_up_offline(file: Path, home: Path) -> bool:
    """Back up a home that no server runs on; false when one does."""
    from .. import config
    from ..engine.backup import NOT_OURS, STORE, taken_offline
    from ..store.lock import HomeLock

    if config.load({"home": home}).database:
        raise Usage(NOT_OURS)
    if not (home / STORE).exists():
        raise Unreachable(f"{home} has no store; name the home with --home, or a server with --url")
    try:
        lock = HomeLock(home / "store.lock")
    except StoreLocked:
        return False
    try:
        with taken_offline(home) as pieces:
            _write(file, pieces)
    finally:
        lock.release()
    return True


def _write(file: Path, pieces: Iterable[bytes]) -> None:
    partial = file.with_name(f".{file.name}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as target:
            for piece in pieces:
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
        partial.rename(file)
    except OSError as error:
        raise Usage(f"{file} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
@home_option
def restore(file: Path, as_json: bool, home: Path | None) -> None:
    """Make a new home from FILE.

    The home must not exist, or be empty. Workers of the old server may attach to the restored one; what
    they were doing is not believed, and run again.
    """
    from ..engine.backup import restore as make

    place = home_of(home)
    make(file, place)
    if as_json:
        print_json({"home": str(place)})
        return
    click.echo(f"{place} is restored; start it with: farhand serve --home {place}")
