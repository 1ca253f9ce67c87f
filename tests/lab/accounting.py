"""The accounting of a Slurm of our own: a MariaDB of its own, and slurmdbd before it."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.harness.deployment import free_port
from tests.harness.waiting import eventually
from tests.optional import need

_GRANT = """\
CREATE USER 'slurm'@'%' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'slurm'@'%';
"""

_CONF = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StorageLoc=lab
LogFile={directory}/slurmdbd.log
PidFile={directory}/slurmdbd.pid
"""


class Accounting:
    """The two daemons, in the directory of the Slurm that they are for. ``port`` is slurmdbd's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self._database = free_port(), free_port()
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self, run: Callable[..., subprocess.Popen[bytes]]) -> None:
        """Make an empty database and start both; ``run`` starts a daemon. munged is there already."""
        where, user = self.directory, getpass.getuser()
        data = where / "mariadb"
        made = [*_plain("mariadb-install-db"), f"--datadir={data}", "--skip-test-db", f"--user={user}"]
        subprocess.run([*made, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
        (where / "grant.sql").write_text(_GRANT)
        self._daemons.append(
            run(
                *_plain("mariadbd"), f"--datadir={data}", f"--socket={where}/mariadb.sock", f"--user={user}",
                "--bind-address=127.0.0.1", f"--port={self._database}", f"--init-file={where}/grant.sql",
                f"--pid-file={where}/mariadb.pid", "--skip-log-bin",
            )
        )  # fmt: skip
        eventually(lambda: _listens(self._database), 60, "MariaDB listens")
        host = socket.gethostname().partition(".")[0]
        text = _CONF.format(directory=where, host=host, port=self.port, user=user, database=self._database)
        path = where / "slurmdbd.conf"
        path.write_text(text)
        path.chmod(0o600)
        self._daemons.append(run("slurmdbd", "-D"))
        eventually(lambda: _listens(self.port), 60, "slurmdbd listens")

    def stop(self) -> None:
        """End them, the database last."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(30)


def _plain(program: str) -> list[str]:
    """A program of MariaDB's that reads no configuration of this machine."""
    return [shutil.which(program, path="/usr/bin:/usr/sbin:/usr/local/bin") or program, "--no-defaults"]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def accounting(directory: Path) -> Iterator[Accounting]:
    """What a `cluster` is given for its accounting; skips the test where that cannot be had."""
    for name in ("slurmdbd", "MariaDB"):
        need(name)
    directory.mkdir(parents=True, exist_ok=True)
    made = Accounting(directory)
    try:
        yield made
    finally:
        made.stop()
