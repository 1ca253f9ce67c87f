"""Fixtures every suite shares."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.lab import postgresql

# The tests start hundreds of interpreters: what they import is compiled once, as whatever pip installs is.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A background job of a shell without job control ignores Ctrl-C, and so does all that it starts; what the
# tests start has to be able to get one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says what else the machine does; a test has the settings of when it is loaded.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

_MEMORY = "/dev/shm"
_ROOM_BYTES = 6 * 1024**3


def _around() -> str:
    """Where temporary files go: to memory where there is enough, for a store syncs each of its commits.

    Whoever sets TMPDIR has chosen.
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return tempfile.gettempdir()
    there = os.statvfs(_MEMORY)
    fits = there.f_bavail * there.f_frsize > _ROOM_BYTES and not there.f_flag & os.ST_NOEXEC
    return _MEMORY if fits else tempfile.gettempdir()


AROUND = _around()
# What tests make for themselves outlives them. Set here, since who hands tests out to processes looks first.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", AROUND)


# While thousands of tests are collected, all of which stay, looking through them again and again takes a
# third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """What there is now need never be looked through."""
    gc.freeze()
    gc.enable()


LONGEST_FIRST = ("lab", "faults", "integration", "console", "contract", "docs")
"""The directories whose files are handed out first. What is left at the end, the units, is short."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A process that is given the longest file last would work on alone."""
    order = {directory: place for place, directory in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.nodeid.split("/")[1], len(order)))


@pytest.fixture(scope="session", autouse=True)
def temporary() -> Iterator[Path]:
    """A temporary directory for the tests and all they start, in which farhand leaves nothing."""
    earlier, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="fh-", dir=AROUND, ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # PostgreSQL passes through it as another user
        tempfile.tempdir = os.environ["TMPDIR"] = name
        yield Path(name)
        postgresql.end()
        left = sorted(path.name for path in Path(name).glob("farhand-*"))
        tempfile.tempdir = earlier
        os.environ.pop("TMPDIR", None)
        os.environ.update({} if variable is None else {"TMPDIR": variable})
    assert left == [], "left in the temporary directory"


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio alone."""
    return "asyncio"
