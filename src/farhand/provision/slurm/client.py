"""Runs Slurm's commands: here, or on the login node by the system's ssh with the site's own configuration.

ssh asks nobody for a password (BatchMode), and its connection is kept for a minute after each use
(ControlMaster), so that a poll costs no login.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..config import Settings
from ..processes import NoSuchCommand, Outcome, run
from .parsing import complaint

_CONNECT_S = 10
_PERSIST_S = 60
_SOCKET = "s"
_PATH_MAX = 86
"""What ssh leaves of the 107 characters of a socket's path, after what it adds for a moment."""


class Failed(Exception):
    """A command could not be run or did not end in time; the message says so in its own words."""


class Client:
    """One place where Slurm's commands are. ``timeout_s`` bounds each call; ``home`` is the server's."""

    def __init__(self, settings: Settings, home: Path) -> None:
        self._wanted = home / "ssh" / hashlib.sha256(settings.name.encode()).hexdigest()[:8]
        self._login = settings.login
        self._key = settings.ssh_key
        self._options = settings.ssh_options
        self.timeout_s = settings.command_timeout_s
        self._sockets: Path | None = None

    @property
    def place(self) -> str:
        """Where commands run, in words."""
        return self._login or "this machine"

    def command(self, words: Sequence[str]) -> list[str]:
        """What is run for a command of Slurm's."""
        if not self._login:
            return list(words)
        sockets = self._directory()
        options = ["BatchMode=yes", *self._options, f"ConnectTimeout={_CONNECT_S}", "ControlMaster=auto"]
        options += [f"ControlPath={sockets}/{_SOCKET}", f"ControlPersist={_PERSIST_S}"]
        key = ["-i", self._key, "-o", "IdentitiesOnly=yes"] if self._key else []
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", *flags, *key, self._login, shlex.join(words)]

    def _directory(self) -> Path:
        """Where the connection is kept, which a server that is started anew finds again.

        The path of a socket is short by nature: below a home that lies deep there is no room for it.
        """
        if self._sockets is None:
            self._sockets = self._wanted
            if len(str(self._wanted / _SOCKET)) >= _PATH_MAX:
                self._sockets = short_directory(self._wanted)
            self._sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._sockets

    async def call(self, words: Sequence[str], text: str = "") -> Outcome:
        """How a command ended, whatever it says. Raises `Failed` where it did not run to its end."""
        try:
            outcome = await run(self.command(words), text, self.timeout_s)
        except NoSuchCommand as error:
            raise Failed(str(error)) from error
        if outcome.code is None:
            said = complaint(outcome.said)
            where = f" on {self._login}" if self._login else ""
            raise Failed(
                f"{words[0]}{where} did not end within {self.timeout_s:g} s" + (said and f": {said}")
            )
        if outcome.code == 255 and self._login:
            said = complaint(outcome.said) or "it said nothing"
            raise Failed(f"ssh to {self._login} failed: {said}")
        return outcome

    async def close(self) -> None:
        """End the connection that was kept."""
        sockets, self._sockets = self._sockets, None
        if sockets is None:
            return
        socket = sockets / _SOCKET
        if socket.exists():
            with contextlib.suppress(NoSuchCommand):
                await run(["ssh", "-O", "exit", "-S", str(socket), self._login], "", _CONNECT_S)
        shutil.rmtree(sockets, ignore_errors=True)


def short_directory(stands_for: Path) -> Path:
    """A directory with a short path that is this user's alone: the same one each time, so that what a killed
    server left is found by the next."""
    digest = hashlib.sha256(os.fsencode(stands_for)).hexdigest()[:12]
    path = Path(tempfile.gettempdir(), f"farhand-ssh-{os.getuid()}-{digest}")
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        known = path.lstat()
        if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.getuid() or known.st_mode & 0o077:
            return Path(tempfile.mkdtemp(prefix="farhand-ssh-"))  # somebody else was there first
    return path
