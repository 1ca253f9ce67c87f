"""``farhand stop``: the process that holds the lock of a home, and nobody else."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farhand.cli.stop import owner

from .conftest import Call


def test_stopping_asks_the_process_that_holds_the_lock_and_waits(call: Call, home: Path) -> None:
    assert call("stop").exit_code == 3
    script = (
        "import fcntl, os, signal, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "os.write(fd, str(os.getpid()).encode())\n"
        "print('held', flush=True)\n"
        "signal.sigwait([signal.SIGTERM])\n"
    )
    mask = [signal.SIGTERM]
    signal.pthread_sigmask(signal.SIG_BLOCK, mask)
    try:
        holder = subprocess.Popen(
            [sys.executable, "-c", script, str(home / "store.lock")], stdout=subprocess.PIPE, text=True
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == "held\n"
        assert owner(home) == holder.pid
        assert "has stopped" in call("stop").stdout
        assert holder.wait(10) == 0
    assert owner(home) is None


def test_stopping_waits_for_the_process_and_not_only_for_its_lock(call: Call, home: Path) -> None:
    script = (
        "import fcntl, os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.close(fd))\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "os.write(fd, str(os.getpid()).encode())\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(home / "store.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        slow = call("stop", "--timeout", "1")
        assert (slow.exit_code, "still runs after 1 s" in slow.stderr) == (1, True)
        assert owner(home) is None
        holder.stdin.close()


def test_the_server_of_another_user_is_refused(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    descriptor = os.open(home / "store.lock", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"1\n")
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    monkeypatch.setattr(os, "kill", kill)
    done = call("stop")
    os.close(descriptor)
    assert (done.exit_code, done.stderr) == (
        3,
        "farhand: process 1 belongs to somebody else; be the user who started it\n",
    )


def test_a_home_that_may_not_be_looked_into_is_refused(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    done = call("stop")
    monkeypatch.undo()
    assert (done.exit_code, "cannot be looked into (Permission denied)" in done.stderr) == (3, True)


def test_a_lock_file_that_nobody_holds_names_nobody(home: Path) -> None:
    descriptor = os.open(home / "store.lock", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"1\n")
    assert owner(home) is None
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert owner(home) == 1
    os.close(descriptor)
