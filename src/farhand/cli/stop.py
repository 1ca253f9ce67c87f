"""``farhand stop``: end the server of a home."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

import click

from ..errors import FarhandError, Unreachable
from .home import home_of
from .options import home_option

_LOOK_S = 0.05


@click.command()
@home_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=60.0,
    metavar="SECONDS",
    help="How long to wait for the end.",
)
def stop(home: Path | None, timeout_s: float) -> None:
    """Stop the server of a home, and wait until it has ended.

    Its own processors end with it, with grace; what they ran is queued again.
    """
    place = home_of(home)
    pid = owner(place)
    if pid is None:
        raise Unreachable(f"no server runs on {place}; name another home with --home")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while owner(place) == pid:
        if time.monotonic() > deadline:
            raise FarhandError(f"process {pid} was told to stop and still runs after {timeout_s:.0f} s")
        time.sleep(_LOOK_S)
    click.echo(f"the server of {place} has stopped")


def owner(home: Path) -> int | None:
    """The process that holds the home's lock; None when it is free."""
    try:
        descriptor = os.open(home / "store.lock", os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.read(descriptor, 32).strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
    return None
