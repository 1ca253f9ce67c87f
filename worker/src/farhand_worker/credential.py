"""The worker's token: where it comes from, and how it is kept from the eyes of others.

What a process was started with, its arguments and its first environment, stays readable for as long as it
lives, by user code too. So a program that was given its token there starts itself again without it and
hands it to itself through a pipe.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from .address import Address
from .invitation import Credential, accept, default_directory, kept
from .settings import Values
from .trust import pin_of
from .usage import Usage

VARIABLE = "FARHAND_WORKER_TOKEN"
_FLAG = "--token"
_BYTES_MAX = 16 * 1024


class Exposed(NamedTuple):
    """How the program must be started again, and the token that was there to see, if it is the one to use."""

    arguments: List[str]
    environ: Dict[str, str]
    token: Optional[str]


def exposed(arguments: Sequence[str], environ: Mapping[str, str]) -> Optional[Exposed]:
    """What hides a token in ``arguments`` or ``environ``; None when there is none."""
    kept: List[str] = []
    flagged: Optional[str] = None
    following = iter(arguments)
    for argument in following:
        if argument == _FLAG:
            flagged = next(following, None)
        elif argument.startswith(_FLAG + "="):
            flagged = argument[len(_FLAG) + 1 :]
        else:
            kept.append(argument)
    if flagged is None and VARIABLE not in environ:
        return None
    elsewhere = any(a.partition("=")[0] in ("--token-file", "--token-fd") for a in kept)
    token = flagged if flagged is not None else (None if elsewhere else environ[VARIABLE])
    return Exposed(kept, {name: value for name, value in environ.items() if name != VARIABLE}, token)


def hide(arguments: Sequence[str]) -> None:
    """Start this program again without its token in sight; return when there is none.

    ``arguments`` are the worker's, the last words of the command line.
    """
    whole = _command_line()
    count = len(whole) - len(arguments)
    found = exposed(arguments, os.environ)
    if found is None or len((found.token or "").encode()) > _BYTES_MAX:
        return
    kept = found.arguments
    if found.token is not None:
        reading, writing = os.pipe()
        os.write(writing, found.token.encode())
        os.close(writing)
        os.set_inheritable(reading, True)
        kept = [*kept, "--token-fd", str(reading)]
    os.execve(sys.executable, [*whole[:count], *kept], found.environ)


def _command_line() -> List[str]:
    """The words this process was started with, those of the interpreter included."""
    told: Optional[List[str]] = getattr(sys, "orig_argv", None)  # from Python 3.10
    if told:
        return list(told)
    try:
        return Path("/proc/self/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return [sys.executable, "-m", "farhand_worker", *sys.argv[1:]]


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
            return accept(address(), code, pin, directory)
        known = kept(address(), directory)
    except OSError as error:
        raise Usage(f"no token can be kept in {directory}: {error.strerror}; give --token-file") from error
    if known is None:
        raise Usage(
            f"a token is needed: --token-file FILE, {VARIABLE}, or the line of `farhand workers invite`"
        )
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
    if " " in token or not token.isascii() or not token.isprintable() or len(token) > _BYTES_MAX:
        raise Usage("the token is not one word, as `farhand tokens create` prints it; check what holds it")
    return token


def _from_file(values: Values) -> bool:
    """Whether the file is the nearer source: of two of the same source, the token itself wins."""
    if values["token_file"] is None:
        return False
    order = ("flag", "environment", "farhand.toml", "default")
    return order.index(values.sources["token_file"]) < order.index(values.sources["token"])
