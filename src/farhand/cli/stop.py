"""``farhand stop``: end the server of a home."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click

from ..errors import FarhandError, Refused, Unreachable
from .home import home_of
from .options import home_option, json_option
from .output import print_json

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
@json_option
def stop(home: Path | None, timeout_s: float, as_json: bool) -> None:
    """Stop the server of a home, and wait until it has ended.

    Its own processors end with it, with grace; what they ran is queued again.
    """
    place = home_of(home)
    pid = owner(place)
    if pid is None:
        raise Unreachable(f"no server runs on {place}; name another home with --home")
    ended = _terminate(pid)
    deadline = time.monotonic() + timeout_s
    while owner(place) == pid or not ended():
        if time.monotonic() > deadline:
            raise FarhandError(f"process {pid} was told to stop and still runs after {timeout_s:.0f} s")
        time.sleep(_LOOK_S)
    if as_json:
        print_json({"home": str(place), "pid": pid})
    else:
        click.echo(f"the server of {place} has stopped")


def _terminate(pid: int) -> Callable[[], bool]:
    """Tell the process to end, and nobody who comes to its id later. The answer is a question to ask again:

    has the process ended? One that only waits to be reaped has.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        process.send_signal(signal.SIGTERM)
    except psutil.AccessDenied as error:
        raise Refused(f"process {pid} belongs to somebody else; be the user who started it") from error
    except psutil.NoSuchProcess:
        return lambda: True

    def ended() -> bool:
        try:
            return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return ended


def owner(home: Path) -> int | None:
    """The process that holds the home's lock; None when it is free."""
    try:
        descriptor = os.open(home / "store.lock", os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"{home} cannot be looked into ({error.strerror}); be the user who owns it") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.read(descriptor, 32).strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
    return None
