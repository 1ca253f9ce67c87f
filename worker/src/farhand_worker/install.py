"""``farhand-worker install --user``: a systemd unit that keeps this worker up, and a file with its token.

Nothing is started: what to say to systemd is printed. The unit names every setting in force now, wherever
it was found, since a service has neither this shell's variables nor its directory.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Sequence

from .machine import CUDA_MASK
from .options import Options
from .proxies import VARIABLES as PROXY_VARIABLES
from .settings import SETTINGS, Setting, Values
from .usage import Usage

COMMAND = "install"
_APART = frozenset({"token", "token_file", "name", "python", "state_dir", "pin", "checkout"})
"""Settings that the unit says in a form of its own."""

_UNIT = """\
[Unit]
Description=farhand worker {name}

[Service]
ExecStart={start}
{variables}# Two signals, one from here and one from systemd, end jobs with grace; they are queued again.
ExecStop=-/bin/kill -INT $MAINPID
Restart={restart}
RestartSec=2
# 2: a setting that cannot be used; 3: refused for good. Starting again changes neither.
RestartPreventExitStatus=2 3
KillMode=mixed
TimeoutStopSec=60

[Install]
WantedBy=default.target
"""


_CARRIED = ("PATH", CUDA_MASK, "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What a worker goes by besides its settings: without these it would not be the one that was tried out."""


class Installed(NamedTuple):
    """What was written."""

    unit: Path
    token_file: Path


def parser_of(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The worker's own command line, with what the installation takes beside it."""
    parser.prog += f" {COMMAND}"
    parser.description = "Writes a systemd unit for a worker with these options."
    parser.add_argument("--user", action="store_true", help="for this user's own systemd")
    return parser


def install(
    values: Values, options: Options, environ: Mapping[str, str], program: Sequence[str]
) -> Installed:
    """Write the unit and the token's file. ``program`` are the words that start a worker. Raises `Usage`."""
    config, state = _base(environ, "CONFIG", ".config"), _base(environ, "STATE", ".local/state")
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", options.name)
    token_file = config / "farhand" / f"{slug}.token"
    unit = config / "systemd" / "user" / f"farhand-worker-{slug}.service"
    state_dir = values["state_dir"] or state / "farhand-worker" / slug
    words = [*program, *_arguments(values), "--name", options.name, "--python", options.python]
    words += ["--state-dir", str(Path(state_dir).absolute()), "--token-file", str(token_file)]
    words += ["--pin", options.pin] if options.pin else []
    words += [str(options.checkout.absolute())] if options.checkout is not None else []
    try:
        _write(token_file, options.token + "\n", 0o600)
        text = unit_text(options, words, environ)
        _write(unit, text, 0o600 if _shows_credentials(environ) else 0o644)
    except OSError as error:
        raise Usage(f"{error.filename} cannot be written: {error.strerror}") from error
    return Installed(unit, token_file)


def unit_text(options: Options, words: Sequence[str], environ: Mapping[str, str]) -> str:
    """The unit of a worker that is started by ``words``."""
    carried = (*_CARRIED, *map(str.upper, PROXY_VARIABLES), *PROXY_VARIABLES)
    said = [name for name in carried if name in environ and (environ[name] or name == CUDA_MASK)]
    variables = "".join(f"Environment={_assigned(name, environ[name])}\n" for name in said)
    restart = "always" if options.max_idle_s is None else "on-failure"
    return _UNIT.format(
        name=options.name.replace("%", "%%"),
        start=" ".join([_program(words[0]), *map(quoted, words[1:])]),
        variables=variables,
        restart=restart,
    )


def _shows_credentials(environ: Mapping[str, str]) -> bool:
    """Whether the address of a proxy has a name and a password in it."""
    proxies = (environ.get(spelt, "") for name in PROXY_VARIABLES for spelt in (name, name.upper()))
    return any("@" in proxy for proxy in proxies)


def quoted(word: str) -> str:
    """A word of a command as systemd reads it."""
    if "\n" in word:
        raise Usage(f"{word!r} has more than one line, which a unit cannot hold")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w./:=,%@+-]+", escaped) else f'"{escaped}"'


def _program(path: str) -> str:
    """The program of a command, in which systemd puts in no variables and allows fewer characters."""
    if set(path) & set("\"'\\"):
        raise Usage(f"{path} has a quote or a backslash in its path, so systemd would not start it")
    return quoted(path).replace("$$", "$")


def _assigned(name: str, value: str) -> str:
    """A variable as ``Environment=`` reads it: a dollar is a dollar there."""
    return quoted(f"{name}={value}").replace("$$", "$")


def told(installed: Installed) -> str:
    """What is left to do."""
    return (
        f"wrote {installed.unit}\nwrote {installed.token_file} (for your eyes only)\n\n"
        f"Start it now and at every login:  systemctl --user daemon-reload\n"
        f"                                  systemctl --user enable --now {installed.unit.name}\n"
        f"At every boot instead:            loginctl enable-linger\n"
        f"Read what it says:                journalctl --user -u {installed.unit.name} -f\n"
    )


def starting_words() -> List[str]:
    """The words that start this program again, wherever it was started from."""
    archive = Path(sys.argv[0])
    if archive.suffix == ".pyz":
        return [os.path.abspath(sys.executable), str(archive.absolute())]
    return [os.path.abspath(sys.executable), "-m", "farhand_worker"]


def _arguments(values: Values) -> List[str]:
    """The options that say what was said, other than by default."""
    words: List[str] = []
    for setting in SETTINGS:
        if setting.own or setting.name in _APART or values.sources[setting.name] == "default":
            continue
        words += _option(setting, values[setting.name])
    return words


def _option(setting: Setting, value: Any) -> List[str]:
    flag = setting.flags[0]
    if isinstance(value, bool):
        return [flag] if value else []
    if setting.many:
        return [word for item in value for word in (flag, str(item))]
    text = (
        ",".join(value)
        if isinstance(value, list)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
    return [flag, text]


def _base(environ: Mapping[str, str], kind: str, otherwise: str) -> Path:
    said = environ.get(f"XDG_{kind}_HOME", "")
    return Path(said) if os.path.isabs(said) else Path.home() / otherwise


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
