"""An invitation's code exchanged for a token, once, and what was bought kept for the next start.

What is kept lies in ``$XDG_CONFIG_HOME/farhand`` (``~/.config/farhand``), one file a server, readable by its
owner alone: not in the state directory, which may be gone after a reboot. So the line of an invitation can be
run again, and after the first time the URL alone is enough.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
from pathlib import Path
from typing import Mapping, NamedTuple, Optional

from . import __version__
from .address import Address
from .trust import Trust

CODE_VARIABLE = "FARHAND_WORKER_INVITE"
_JOIN = "/api/v1/workers/join"
_TIMEOUT_S = 30.0
_ANSWER_BYTES_MAX = 64 * 1024


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


def accept(address: Address, code: str, pin: Optional[str], directory: Path) -> Credential:
    """The credential that ``code`` buys, or has bought before on this machine.

    Raises `NotInvited`, `NoExchange`, or OSError when it cannot be kept: the code is not used up then.
    """
    bought_with = hashlib.sha256(code.encode()).hexdigest()
    known = kept(address, directory)
    if known is not None and known.bought_with == bought_with:
        return known
    _write(_file(address, directory).with_suffix(".probe"), " " * 4096).unlink()  # a full disk costs no code
    credential = _exchange(address, code, pin)._replace(bought_with=bought_with)
    _keep(address, directory, credential)
    return credential


def kept(address: Address, directory: Path) -> Optional[Credential]:
    """What an earlier invitation to this server left."""
    try:
        found = json.loads(_file(address, directory).read_text())
        credential = Credential(**found)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return credential


def default_directory(environ: Mapping[str, str]) -> Path:
    """Where credentials are kept."""
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "farhand"


def _exchange(address: Address, code: str, pin: Optional[str]) -> Credential:
    connection = _connection(address, pin)
    body = json.dumps({"code": code})
    headers = {"Content-Type": "application/json", "User-Agent": f"farhand-worker/{__version__}"}
    try:
        connection.request("POST", address.base + _JOIN, body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read(_ANSWER_BYTES_MAX) or b"null")
        if response.status in (403, 422):
            raise NotInvited(str(answer["detail"]))
        if response.status != 200:
            raise NoExchange(f"{address.text} answered {response.status} to the code of the invitation")
        return Credential(str(answer["token"]), str(answer["name"]), pin)
    except (OSError, http.client.HTTPException) as error:  # a certificate's error is a ValueError as well
        raise NoExchange(f"{address.text} cannot be reached: {error or type(error).__name__}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise NoExchange(f"{address.text} is not a farhand server") from error
    finally:
        connection.close()


def _connection(address: Address, pin: Optional[str]) -> http.client.HTTPConnection:
    if not address.secure:
        return http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
    try:
        context = Trust(pin).context(address)
    except OSError as error:
        raise NoExchange(f"{address.text} cannot be reached: {error or type(error).__name__}") from error
    return http.client.HTTPSConnection(address.host, address.port, timeout=_TIMEOUT_S, context=context)


def _file(address: Address, directory: Path) -> Path:
    where = re.sub(r"[^a-z0-9.]+", "-", f"{address.host}-{address.port}{address.base}".lower())
    return directory / f"worker-{where}.json"


def _keep(address: Address, directory: Path, credential: Credential) -> None:
    path = _file(address, directory)
    os.replace(_write(path.with_suffix(".new"), json.dumps(credential._asdict())), path)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return path
