"""The one table of a worker's settings; a value is found by flag, environment, farhand.toml or default."""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import __version__, units
from .blobs import BYTES_MAX
from .invitation import CODE_VARIABLE
from .toml import tables
from .usage import Usage

FILE_NAME = "farhand.toml"
TABLE = "worker"
PREFIX = "FARHAND_WORKER_"
_log = logging.getLogger("farhand.worker")


@dataclass(frozen=True)
class Setting:
    """A row of the table. ``flags`` are its options, ``keys`` its names in farhand.toml.

    ``many`` may be given more than once; ``own`` are told by a server to workers that it starts, and only so.
    """

    name: str
    flags: Tuple[str, ...]
    read: Callable[[Any], Any]
    help: str
    metavar: str = ""
    default: Any = None
    keys: Tuple[str, ...] = ()
    aliases: Tuple[str, ...] = ()
    many: bool = False
    own: bool = False
    prefix: str = PREFIX

    @property
    def variable(self) -> str:
        """Its environment variable; a server's own worker has none."""
        return "" if self.own else self.prefix + self.name.upper()


def _row(name: str, read: Callable[[Any], Any], help: str, metavar: str = "", **more: Any) -> Setting:
    flag = "--" + name.replace("_", "-")
    given: Dict[str, Any] = {"keys": (name,), **more}
    return Setting(name, (flag,), read, help, metavar or name.upper(), **given)


SETTINGS: Tuple[Setting, ...] = (
    _row(
        "url",
        units.text,
        "the server, with or without base path: https://HOST[:PORT][/BASE]",
        keys=("url", "host"),
        aliases=("--host",),
    ),
    _row("token", units.text, "the credential; a file or a variable keeps it from other eyes", keys=()),
    _row("token_file", units.text, "a file with the credential", "FILE"),
    _row(
        "pin", units.text, "the one certificate the server may present, as invitations name it", "sha256:HEX"
    ),
    _row("name", units.text, "what this worker calls itself (default: the host's name)"),
    _row("labels", units.labels, "the labels of the token, as a check (default: the token's)", "A,B"),
    _row("python", units.text, "what user code runs on (default: what this runs on)", "PROGRAM"),
    Setting(
        "parallel",
        ("--parallel", "--processors"),
        units.slots,
        "jobs at a time (default 1)",
        "N",
        1,
        ("parallel", "processors"),
    ),
    _row("cpus", units.count, "cores to lend (default: as found)", "N"),
    _row("gpus", units.count, "GPUs to lend (default: as found)", "N"),
    _row("ram_mb", units.megabytes, "memory to lend, in MB or like 64G (default: as found)", "SIZE"),
    Setting(
        "shared_paths",
        ("--shared-path",),
        units.paths,
        "a directory that the server sees under the same path (may be given more than once)",
        "PATH",
        (),
        ("shared_paths",),
        many=True,
    ),
    _row("artifact_url", units.text, "where artifacts are (default: where the server is)", "URL"),
    _row(
        "artifact_cache",
        units.text,
        "where values and files from the server are kept (default: in --state-dir)",
        "DIR",
        prefix="FARHAND_",
    ),
    _row(
        "artifact_cache_bytes",
        units.size_bytes,
        "how much of them is kept beyond what jobs use, in bytes or like 8G (default 1G)",
        "SIZE",
        default=BYTES_MAX,
        prefix="FARHAND_",
    ),
    _row("service_host", units.text, "by which name others reach this machine's services", "HOST"),
    _row("max_idle", units.seconds, "leave after so many seconds with nothing to do (default: never)", "S"),
    _row("state_dir", units.text, "where everything is kept (default: below the temporary files)", "DIR"),
    Setting(
        "pass_env",
        ("--pass-env",),
        units.variables,
        "let user code have this variable though it looks like a credential (may be given more than once)",
        "NAME",
        (),
        ("pass_env",),
        many=True,
    ),
    _row(
        "status_host",
        units.text,
        "where the status page listens (default 127.0.0.1)",
        "HOST",
        default="127.0.0.1",
    ),
    _row("status_port", units.port, "the port of the status page (default: a free one)", "PORT", default=0),
    _row(
        "insecure",
        units.switch,
        "allow a link that is not encrypted and leads off this machine",
        default=False,
    ),
    Setting(
        "checkout",
        ("DIR",),
        units.text,
        "this machine's own checkout of the project (default: code comes from the server)",
        "DIR",
        keys=(),
    ),
    _row("url_file", units.text, "", keys=(), own=True),
    _row("relay_file", units.text, "", keys=(), own=True),
    _row("token_fd", units.count, "", keys=(), own=True),
    _row("cwd", units.text, "", keys=(), own=True),
    _row("orphan_s", units.seconds, "", keys=(), own=True),
)
_EITHER = (("url", "url_file"), ("token", "token_fd", "token_file"))
_AS_GIVEN = {"token_fd": "token"}
"""A token that was an argument has become a descriptor by the time that settings are read."""


@dataclass(frozen=True)
class Values:
    """Every setting with its value, and where that was found."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def by_flag(self, name: str) -> Any:
        """The value when it was given on the command line."""
        return self.values[name] if self.sources[name] == "flag" else None

    def otherwise(self, name: str) -> Any:
        """The value when the environment or the file says it."""
        return self.values[name] if self.sources[name] in ("environment", FILE_NAME) else None


def parser(prog: str = "farhand-worker") -> argparse.ArgumentParser:
    """The command line. Values are read later, like those of the environment and the file."""
    made = argparse.ArgumentParser(
        prog,
        description="Lends this machine to a farhand server.",
        epilog="`farhand-worker install --user`, with the same options, writes a systemd unit to keep it up.",
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=__version__)
    for setting in SETTINGS:
        if not setting.flags[0].startswith("-"):
            made.add_argument(setting.name, nargs="?", metavar=setting.metavar, help=setting.help)
            continue
        about = argparse.SUPPRESS if setting.own else setting.help
        if setting.read is units.switch:
            made.add_argument(
                *setting.flags, dest=setting.name, action="store_true", default=None, help=about
            )
            continue
        action = "append" if setting.many else "store"
        options: Dict[str, Any] = {"dest": setting.name, "action": action, "metavar": setting.metavar}
        made.add_argument(*setting.flags, help=about, **options)
        for alias in setting.aliases:
            made.add_argument(alias, help=argparse.SUPPRESS, **options)
    return made


def load(given: Mapping[str, Any], environ: Mapping[str, str], directory: Optional[Path]) -> Values:
    """Read every setting; the file is that of ``directory``. Raises `Usage` naming setting and source."""
    flags = {name: value for name, value in given.items() if value is not None}
    _check_either(flags)
    named = {s.name: environ[s.variable] for s in SETTINGS if s.variable and environ.get(s.variable)}
    _warn_of_unknown(environ)
    layers = (("flag", flags), ("environment", named), (FILE_NAME, file_settings(directory)))
    values: Dict[str, Any] = {}
    sources: Dict[str, str] = {}
    for setting in SETTINGS:
        found = ((source, layer[setting.name]) for source, layer in layers if setting.name in layer)
        source, raw = next(found, ("default", setting.default))
        values[setting.name] = raw if source == "default" else _read(setting, source, raw)
        sources[setting.name] = source
    return Values(values, sources)


def file_settings(directory: Optional[Path]) -> Dict[str, Any]:
    """The table ``[worker]`` of ``directory``'s farhand.toml, by the names of settings. Raises `Usage`."""
    path = None if directory is None else directory / FILE_NAME
    if path is None or not path.is_file():
        return {}
    try:
        table = tables(path.read_text(encoding="utf-8")).get(TABLE, {})
    except (OSError, ValueError) as error:
        raise Usage(f"{path} cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise Usage(f"{path} has no table [{TABLE}], but {TABLE} = {table!r}")
    known = {key: setting.name for setting in SETTINGS for key in setting.keys}
    unknown: List[str] = sorted(set(table) - set(known))
    if unknown:
        hint = "; the token goes in a file of its own, named by token_file" if "token" in unknown else ""
        raise Usage(f"{path} has unknown settings under [{TABLE}]: {', '.join(unknown)}{hint}")
    found: Dict[str, Any] = {}
    for key, value in table.items():
        if known[key] in found:
            raise Usage(f"{path} says {known[key]} twice under [{TABLE}]; {key} is another word for it")
        found[known[key]] = _beside(path, known[key], value)
    return found


def _beside(path: Path, name: str, value: Any) -> Any:
    """Paths in a file are meant from where the file lies."""
    if name in ("token_file", "state_dir", "artifact_cache") and isinstance(value, str):
        return str(path.parent / Path(value).expanduser())
    if name == "python" and isinstance(value, str) and "/" in value:
        return str(path.parent / Path(value).expanduser())
    return value


def _read(setting: Setting, source: str, raw: Any) -> Any:
    try:
        return setting.read(raw)
    except ValueError as error:
        shown = (
            "the value"
            if setting.name == "token"
            else repr(raw[-1] if source == "flag" and setting.many else raw)
        )
        raise Usage(f"{_where(setting, source)}: {shown} {error}") from error


def _where(setting: Setting, source: str) -> str:
    """A setting as whoever gave it knows it."""
    if source == "flag":
        return setting.flags[0]
    return setting.variable if source == "environment" else f"{setting.keys[0]} in {source}"


def _check_either(flags: Mapping[str, Any]) -> None:
    for names in _EITHER:
        given = ["--" + _AS_GIVEN.get(name, name).replace("_", "-") for name in names if name in flags]
        if len(given) > 1:
            raise Usage(f"{' and '.join(given)} say the same thing; give one of them")


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    """A variable with our prefix may come from elsewhere (a cluster names its services so): not an error."""
    known = {setting.variable for setting in SETTINGS} | {CODE_VARIABLE}
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        _log.warning("not a setting of a worker, and not used: %s", ", ".join(unknown))
