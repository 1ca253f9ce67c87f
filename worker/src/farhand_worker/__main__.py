"""``python -m farhand_worker``: lend this machine to a server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, List, Optional, Tuple

from . import __version__
from .address import Address, BadAddress, parse
from .agent import Agent, Options
from .inventory import BadInventory, detect, here
from .invitation import CODE_VARIABLE, Credential, NoExchange, NotInvited, accept, default_directory, kept
from .state import StateDirectory, StateRefused
from .trust import BadPin, pin_of
from .warden import become_subreaper

_USAGE, _REFUSED, _INTERRUPTED = 2, 3, 130
_TOKEN_VARIABLE = "FARHAND_WORKER_TOKEN"


class Usage(Exception):
    """The options cannot be used as given; the message says which and what would be."""


def main(arguments: Optional[List[str]] = None) -> int:
    """Run a worker until it is stopped; the exit code is 0 stopped, 2 usage, 3 refused, 130 interrupted."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    log = logging.getLogger("farhand.worker")
    try:
        given = _parser().parse_args(arguments)
        if platform.system() not in ("Linux", "Darwin"):
            raise Usage("farhand-worker runs on Linux and macOS; on Windows, run it in WSL")
        python, python_version = _python(given.python)
        address = _address(given)
        credential = _credential(given, address)
        options = Options(
            address=address,
            token=credential.token,
            pin=credential.pin,
            name=given.name or socket.gethostname(),
            parallel=given.parallel,
            python=python,
            python_version=python_version,
            cwd=given.cwd,
            orphan_s=given.orphan_s,
            inventory=detect(here()).inventory,
        )
        state = _state(given.state_dir or _default_state(options.name))
    except (Usage, BadAddress, BadInventory, BadPin) as error:
        log.error("%s", error)
        return _USAGE
    except (StateRefused, NotInvited, NoExchange) as error:
        log.error("%s", error)
        return _REFUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    try:
        return asyncio.run(_serve(options, state))
    finally:
        state.close()


async def _serve(options: Options, state: StateDirectory) -> int:
    become_subreaper()
    agent = Agent(options, state)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.signalled)
    return await agent.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("farhand-worker", description="Lends this machine to a farhand server.")
    parser.add_argument("--version", action="version", version=__version__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="the server: https://HOST[:PORT][/BASE]")
    where.add_argument("--url-file", type=Path, help="a file that holds the URL; read before every dial")
    token = parser.add_mutually_exclusive_group()
    token.add_argument("--token-file", type=Path, help=f"a file with the token (or set {_TOKEN_VARIABLE})")
    token.add_argument("--token-fd", type=int, help="an open descriptor to read the token from")
    parser.add_argument(
        "--pin",
        metavar="sha256:HEX",
        help="the one certificate the server may present, as invitations name it",
    )
    parser.add_argument("--name", help="the name of this worker (default: the host's)")
    parser.add_argument("--parallel", type=_positive, default=1, help="jobs at a time (default 1)")
    parser.add_argument(
        "--state-dir", type=Path, help="where everything is kept (default: below /tmp, by name)"
    )
    parser.add_argument("--python", default=sys.executable, help="what user code runs on (default: this)")
    parser.add_argument("--cwd", type=_directory, help="where jobs work (default: a fresh directory each)")
    parser.add_argument("--insecure", action="store_true", help="allow an unencrypted link off this machine")
    parser.add_argument("--orphan-s", type=float, help="end when no server has answered for so many seconds")
    return parser


def _address(given: argparse.Namespace) -> Callable[[], Address]:
    """How to learn the address: fixed, or from a file that the server rewrites at each start."""
    if given.url is not None:
        fixed = parse(given.url, given.insecure)
        return lambda: fixed
    path: Path = given.url_file

    def read() -> Address:
        try:
            return parse(path.read_text(), given.insecure)
        except OSError as error:
            raise BadAddress(f"cannot read {path}: {error.strerror}") from error

    return read


def _credential(given: argparse.Namespace, address: Callable[[], Address]) -> Credential:
    """The token: given, bought now with the code of an invitation, or kept from an earlier one."""
    token, code = _token(given), os.environ.pop(CODE_VARIABLE, "").strip()
    pin = None if given.pin is None else pin_of(given.pin)
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
            f"a token is needed: --token-file FILE, --token-fd N, {_TOKEN_VARIABLE}, or the line of"
            " `farhand workers invite`"
        )
    return known._replace(pin=pin or known.pin)


def _token(given: argparse.Namespace) -> str:
    """The token, from wherever it was given; it is not in this process's environment after that."""
    environ = os.environ.pop(_TOKEN_VARIABLE, "")
    try:
        if given.token_fd is not None:
            with os.fdopen(given.token_fd, "r") as source:
                token = source.read().strip()
        elif given.token_file is not None:
            token = given.token_file.read_text().strip()
        else:
            token = environ.strip()
    except (OSError, ValueError) as error:
        where = given.token_file or f"descriptor {given.token_fd}"
        raise Usage(f"the token cannot be read from {where}: {getattr(error, 'strerror', error)}") from error
    if not token and (given.token_fd is not None or given.token_file is not None):
        raise Usage(f"a token is needed, and {given.token_file or 'the descriptor'} holds none")
    if " " in token or not token.isascii() or not token.isprintable():
        raise Usage("the token is not one word, as `farhand tokens create` prints it; check what holds it")
    return token


def _python(program: str) -> Tuple[str, str]:
    """The interpreter of user code as an absolute path, and its version."""
    path = os.path.abspath(program)
    if path == os.path.abspath(sys.executable):
        return path, platform.python_version()
    code = "import platform, sys; print(platform.python_version(), sys.version_info >= (3, 9))"
    try:
        answer = subprocess.run(
            [path, "-I", "-S", "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
        )
        version, fits = answer.stdout.decode().split()
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Usage(f"--python {program} is no Python that runs here: {why}") from error
    if fits != "True":
        raise Usage(f"--python {program} is Python {version}; user code needs 3.9 or later")
    return path, version


def _state(path: Path) -> StateDirectory:
    """The state directory, made and locked."""
    state = StateDirectory(path)
    try:
        state.open()
    except OSError as error:
        state.close()
        raise Usage(f"{path} cannot be written ({error.strerror}); choose another --state-dir") from error
    return state


def _default_state(name: str) -> Path:
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    return Path(tempfile.gettempdir()) / f"farhand-worker-{os.getuid()}-{safe}"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _directory(text: str) -> Path:
    path = Path(text).absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory")
    return path


if __name__ == "__main__":
    sys.exit(main())
