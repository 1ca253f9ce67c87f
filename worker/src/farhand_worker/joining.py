"""An invitation's code exchanged for a token at the server, once."""

from __future__ import annotations

import hashlib
import http.client
import json
from pathlib import Path
from typing import Optional

from . import __version__
from .address import Address
from .invitation import Credential, NoExchange, NotInvited, keep, kept, make_sure_of_room
from .trust import Trust
from .ways import connection_to

_JOIN = "/api/v1/workers/join"
_TIMEOUT_S = 30.0
_ANSWER_BYTES_MAX = 64 * 1024


def accept(address: Address, code: str, pin: Optional[str], directory: Path) -> Credential:
    """The credential that ``code`` buys, or has bought before on this machine.

    Raises `NotInvited`, `NoExchange`, or OSError when it cannot be kept: the code is not used up then.
    """
    bought_with = hashlib.sha256(code.encode()).hexdigest()
    known = kept(address, directory)
    if known is not None and known.bought_with == bought_with:
        return known
    make_sure_of_room(address, directory)  # a full disk costs no code
    credential = _exchange(address, code, pin)._replace(bought_with=bought_with)
    keep(address, directory, credential)
    return credential


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
    try:
        return connection_to(address, _TIMEOUT_S, Trust(pin).context(address) if address.secure else None)
    except OSError as error:
        raise NoExchange(f"{address.text} cannot be reached: {error or type(error).__name__}") from error
