"""``python -m farhand_worker``: lend this machine to a server."""

from __future__ import annotations

import logging
import os
import platform
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

from .hiding import VARIABLE, hide
from .install import COMMAND, install, parser_of, starting_words, told
from .invitation import CODE_VARIABLE, NoExchange, NotInvited
from .launch import launch
from .options import Options, options
from .settings import Values, load, parser
from .speaking import speak
from .state import StateDirectory, StateRefused
from .usage import Usage

_USAGE, _REFUSED, _INTERRUPTED = 2, 3, 130
_RELAY = "relay"


def program() -> int:
    """The worker as a process of its own, as which it is installed."""
    hide(sys.argv[1:])
    return main(sys.argv[1:])


def main(arguments: List[str]) -> int:
    """Run a worker until it is stopped; the exit code is 0 stopped, 2 usage, 3 refused, 130 interrupted."""
    speak()
    log = logging.getLogger("farhand.worker")
    try:
        if arguments[:1] == [COMMAND]:
            _install(arguments[1:])
            return 0
        if arguments[:1] == [_RELAY]:
            return _relay(arguments[1:])
        chosen = options(*_settings(vars(parser().parse_args(arguments))))
        state = _state(chosen.state_dir)
    except Usage as error:
        log.error("%s", error)
        return _USAGE
    except (StateRefused, NotInvited, NoExchange) as error:
        log.error("%s", error)
        return _REFUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    try:
        return _work(chosen, state)
    except Usage as error:
        log.error("%s", error)
        return _USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        state.close()


def _work(options: Options, state: StateDirectory) -> int:
    launched = launch(options, state)
    try:
        from .agent import STOPPED, work

        code = work(options, state, launched)
    finally:
        launched.close()
    if options.passing and code == STOPPED:
        _leave_nothing(state)
    return code


def _relay(arguments: List[str]) -> int:
    from .relay import relay

    return relay(arguments)


def _settings(given: Dict[str, Any]) -> Tuple[Values, str]:
    """The settings in force, and the code of an invitation; no secret stays in the environment."""
    if platform.system() not in ("Linux", "Darwin"):
        raise Usage("farhand-worker runs on Linux and macOS; on Windows, run it in WSL")
    # A server tells workers that it starts everything; the file of settings is for those that people start.
    by_server = given["url_file"] is not None or given["relay_file"] is not None
    directory = None if by_server else Path(given["checkout"] or ".").absolute()
    values = load(given, os.environ, directory)
    os.environ.pop(VARIABLE, None)
    return values, os.environ.pop(CODE_VARIABLE, "").strip()


def _install(arguments: List[str]) -> None:
    given = vars(parser_of(parser()).parse_args(arguments))
    if not given.pop("user"):
        raise Usage(
            "install writes a unit for a user's own systemd: give --user (as root, write one by hand)"
        )
    values, code = _settings(given)
    sys.stdout.write(told(install(values, options(values, code), os.environ, starting_words())))


def _leave_nothing(state: StateDirectory) -> None:
    """The machine goes back to its scheduler: what nobody will come back for goes with it."""
    unsent = state.unsent()
    if not state.remove():
        why = f"{unsent} files in it were not delivered to the server" if unsent else "it cannot be removed"
        logging.getLogger("farhand.worker").warning("%s stays: %s", state.path, why)


def _state(path: Path) -> StateDirectory:
    """The state directory, made and locked."""
    state = StateDirectory(path)
    try:
        state.open()
    except OSError as error:
        state.close()
        raise Usage(f"{path} cannot be written ({error.strerror}); choose another --state-dir") from error
    return state


if __name__ == "__main__":
    sys.exit(program())
