"""An sshd of our own on a free loopback port, which lets one throwaway key in."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.harness.deployment import free_port
from tests.harness.waiting import eventually
from tests.optional import need

_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {directory}/host
PidFile none
AuthorizedKeysFile {directory}/id.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PrintMotd no
"""


class Sshd:
    """The daemon. ``login``, ``key`` and ``options`` are how one gets in."""

    def __init__(self, directory: Path, environment: Mapping[str, str], address: str = "127.0.0.1") -> None:
        self._address = address
        self.directory = directory
        self.port = free_port()
        self.key = directory / "id"
        self.login = f"{getpass.getuser()}@{address}"
        self.options = [f"Port={self.port}", f"UserKnownHostsFile={directory}/known_hosts"]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the keys, start it, and wait until it listens."""
        for name in ("host", "id"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.directory / name)]
            subprocess.run(words, check=True, timeout=20)
        public = " ".join((self.directory / "host.pub").read_text().split()[:2])
        (self.directory / "known_hosts").write_text(f"[{self._address}]:{self.port} {public}\n")
        config = _CONFIG.format(port=self.port, directory=self.directory, address=self._address)
        given = " ".join(f"{name}={value}" for name, value in self._environment.items())
        (self.directory / "config").write_text(config + (f"SetEnv {given}\n" if given else ""))
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "-D", "-e", "-f", str(self.directory / "config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(lambda: "Server listening" in (self.directory / "log").read_text(), what="sshd listens")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)


@contextlib.contextmanager
def login_node(directory: Path, environment: Mapping[str, str], address: str = "127.0.0.1") -> Iterator[Sshd]:
    """A running sshd whose sessions have ``environment``. Skips the test where there is none."""
    need("OpenSSH")
    directory.mkdir(parents=True, exist_ok=True)
    sshd = Sshd(directory, environment, address)
    try:
        sshd.start()
        yield sshd
    finally:
        sshd.stop()
