"""The worker's token: given, bought with the code of an invitation, or kept from an earlier one."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Callable

from .address import Address
from .hiding import BYTES_MAX, VARIABLE
from .invitation import Credential, default_directory, file_of, kept
from .pins import pin_of
from .settings import Values
from .usage import Usage

_log = logging.getLogger("farhand.worker")


def credential(values: Values, address: Callable[[], Address], code: str) -> Credential:
    """The token: given, bought now with the code of an invitation, or kept from an earlier one.

    Raises `Usage`, `NotInvited` and `NoExchange`.
    """
    pin = None if values["pin"] is None else pin_of(values["pin"])
    token = token_of(values)
    if token:
        return Credential(token, "", pin)
    directory = default_directory(os.environ)
    try:
        if code:
            from .joining import accept

            return accept(address(), code, pin, directory)
        known = kept(address(), directory)
    except OSError as error:
        raise Usage(f"no token can be kept in {directory}: {error.strerror}; give --token-file") from error
    if known is None:
        raise Usage(
            f"a token is needed: --token-file FILE, {VARIABLE}, or the line of `farhand workers invite`"
        )
    _log.info("with the token that an earlier invitation left in %s", file_of(address(), directory))
    return known._replace(pin=pin or known.pin)


def token_of(values: Values) -> str:
    """The token, empty when none was given. Raises `Usage`, which never repeats it."""
    where = ""
    try:
        if values["token_fd"] is not None:
            where = f"descriptor {values['token_fd']}"
            with os.fdopen(values["token_fd"], "r") as source:
                token = source.read().strip()
        elif _from_file(values):
            where = values["token_file"]
            token = Path(where).read_text().strip()
        else:
            token = values["token"] or ""
    except (OSError, ValueError) as error:
        raise Usage(f"the token cannot be read from {where}: {getattr(error, 'strerror', error)}") from error
    if not token and where:
        raise Usage(f"a token is needed, and {where} holds none")
    if " " in token or not token.isascii() or not token.isprintable() or len(token) > BYTES_MAX:
        raise Usage("the token is not one word, as `farhand tokens create` prints it; check what holds it")
    return token


def _from_file(values: Values) -> bool:
    """Whether the file is the nearer source: of two of the same source, the token itself wins."""
    if values["token_file"] is None:
        return False
    order = ("flag", "environment", "farhand.toml", "default")
    return order.index(values.sources["token_file"]) < order.index(values.sources["token"])
