"""What an invitation's code has bought, kept for the next start.

What is kept lies in ``$XDG_CONFIG_HOME/farhand`` (``~/.config/farhand``), one file a server, readable by its
owner alone: not in the state directory, which may be gone after a reboot. So the line of an invitation can be
run again, and after the first time the URL alone is enough.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Mapping, NamedTuple, Optional

from .address import Address

CODE_VARIABLE = "FARHAND_WORKER_INVITE"


class NotInvited(Exception):
    """The server gives no token for the code; the message says why."""


class NoExchange(Exception):
    """The server was not reached, or did not answer as one; the code may still be good."""


class Credential(NamedTuple):
    """A token, the name in it, and the pin of the server that gave it. ``bought_with`` is the code's hash."""

    token: str
    name: str
    pin: Optional[str] = None
    bought_with: str = ""


def kept(address: Address, directory: Path) -> Optional[Credential]:
    """What an earlier invitation to this server left."""
    try:
        found = json.loads(file_of(address, directory).read_text())
        credential = Credential(**found)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return credential


def default_directory(environ: Mapping[str, str]) -> Path:
    """Where credentials are kept."""
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "farhand"


def file_of(address: Address, directory: Path) -> Path:
    """Where the credential of a server is kept."""
    where = re.sub(r"[^a-z0-9.]+", "-", f"{address.host}-{address.port}{address.base}".lower())
    return directory / f"worker-{where}.json"


def make_sure_of_room(address: Address, directory: Path) -> None:
    """Raises OSError where nothing could be kept."""
    _write(file_of(address, directory).with_suffix(".probe"), " " * 4096).unlink()


def keep(address: Address, directory: Path, credential: Credential) -> None:
    """Keep it for the next start. Raises OSError."""
    path = file_of(address, directory)
    os.replace(_write(path.with_suffix(".new"), json.dumps(credential._asdict())), path)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return path
