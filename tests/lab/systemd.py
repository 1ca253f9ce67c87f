"""A systemd of its own for one user, as a login would start it, in namespaces of its own.

It sees the machine's files and network, but has process ids, control groups and ``/run`` to itself: no unit
of the machine is touched, and all that it started ends with it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests.harness.waiting import eventually
from tests.optional import need

_RUNTIME = "/run/user/0"
# systemd for a user starts only where one for the system has left this directory, and not as process 1.
_BOOT = f"""
mount -t cgroup2 none /sys/fs/cgroup || exit 9
mount -t tmpfs none /run || exit 9
mkdir -p /run/systemd/system {_RUNTIME} && chmod 700 {_RUNTIME}
"$1" --user &
wait $!
"""
_NOT_ALLOWED = 9


class UserSystemd:
    """The service manager of a user whose home is ``home``."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        self._environment = {
            **environment,
            "HOME": str(home),
            "XDG_RUNTIME_DIR": _RUNTIME,
            "SYSTEMD_LOG_TARGET": "console",
        }
        self._log = home / "systemd.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, program: Path) -> None:
        """Start it, and wait until it has its basic units; skips the test where that is not allowed."""
        config = self.home / ".config" / "systemd" / "user.conf"
        config.parent.mkdir(parents=True)
        config.write_text("[Manager]\nDefaultStandardOutput=inherit\n")  # there is no journal
        words = ["unshare", "--mount", "--cgroup", "--pid", "--mount-proc", "--fork", "--kill-child"]
        with self._log.open("wb") as log:
            self._process = process = subprocess.Popen(
                [*words, "bash", "-c", _BOOT, "boot", str(program)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        def is_up() -> bool:
            return process.poll() is not None or (
                bool(self._inner()) and self.run("systemctl --user is-system-running").stdout == "running\n"
            )

        eventually(is_up, what="systemd runs")
        if process.poll() == _NOT_ALLOWED or "Operation not permitted" in self.text():
            pytest.skip(f"namespaces of its own are not allowed here: {self.text()}")
        assert process.poll() is None, self.text()

    def text(self) -> str:
        """What it and its services have said."""
        return self._log.read_text(errors="replace")

    def run(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A line of a shell of that user."""
        inside = ["nsenter", "--mount", "--pid", f"--target={self._inner()[0].pid}"]
        return subprocess.run(
            [*inside, "bash", "-c", command],
            env=self._environment | variables,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def do(self, command: str) -> str:
        """A line that has to succeed; its output."""
        done = self.run(command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.text()[-2000:]}"
        return done.stdout

    def shown(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.do(f"systemctl --user show --value --property={name} {unit}").strip()

    def pids(self) -> list[int]:
        """The processes of its services, as the machine numbers them."""
        return [p.pid for inner in self._inner() for p in inner.children(recursive=True) if not _is_own(p)]

    def close(self) -> None:
        """End it, and with it all that it started."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def _inner(self) -> list[psutil.Process]:
        assert self._process is not None
        try:
            return psutil.Process(self._process.pid).children()
        except psutil.NoSuchProcess:
            return []


def _is_own(process: psutil.Process) -> bool:
    try:
        return process.name() in ("systemd", "dbus-daemon")
    except psutil.NoSuchProcess:
        return True


@contextlib.contextmanager
def user_systemd(home: Path) -> Iterator[UserSystemd]:
    """One that runs; skips the test where there is no systemd, or no right to give it namespaces."""
    program = need("systemd")
    if os.getuid() != 0:
        pytest.skip("namespaces of its own are for root alone")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FARHAND_", "DBUS_"))}
    manager = UserSystemd(home, clean)
    try:
        manager.start(program)
        yield manager
    finally:
        manager.close()
