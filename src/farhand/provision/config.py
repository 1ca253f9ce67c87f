"""provisioners.json (or ``[[provisioner]]`` in farhand.toml): read strictly, each mistake by its field."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..engine.tokens import LABEL_PATTERN
from ..errors import Usage
from ..model import NAME_PATTERN
from ..provisioning import Shape
from ..sdk.durations import seconds
from ..sdk.sizes import size_mb_of

FILE_NAME = "provisioners.json"
TOML_NAME = "farhand.toml"


@dataclass(frozen=True, slots=True)
class Profile:
    """One shape of machine: what it is, what the scheduler is told, and what is run before the worker."""

    name: str
    cpus: int | None = None
    gpus: int | None = None
    ram_mb: int | None = None
    labels: tuple[str, ...] = ()
    parallel: int = 1
    sbatch: tuple[str, ...] = ()
    prerun: tuple[str, ...] = ()
    worker: tuple[str, ...] = ("farhand-worker",)

    @property
    def digest(self) -> str:
        """Names what it asks for: another one for another machine. A default more changes nothing."""
        told = {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != f.default}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Settings:
    """One provisioner. ``engine_url`` empty: the address that this server tells other machines."""

    type: str
    name: str
    profiles: tuple[Profile, ...]
    engine_url: str = ""
    insecure: bool = False
    max_idle_s: float = 300.0
    provision_timeout_s: float = 900.0
    max_outstanding: int = 1
    on_stop: str = "cancel"
    poll_s: float = 10.0
    command_timeout_s: float = 30.0
    login: str = ""
    ssh_key: str = ""
    ssh_options: tuple[str, ...] = ()
    route: str = "direct"
    relay: tuple[str, ...] = ("farhand-worker",)
    relay_host: str = ""
    relay_port: int = 0
    submit: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()

    def shapes(self) -> tuple[Shape, ...]:
        """Its profiles, as they are chosen from."""
        return tuple(
            Shape(self.name, p.name, p.labels, p.cpus, p.gpus, p.ram_mb, p.parallel, self.max_outstanding)
            for p in self.profiles
        )


# ---------------------------------------------------------------- values


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text")
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise ValueError("has a line break or another control character")
    return value


def _name(value: Any) -> str:
    if re.fullmatch(NAME_PATTERN, _text(value)) is None:
        raise ValueError("is not a name: lower-case letters, digits, '.', '_' and '-', at most 63")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("is no list of texts")
    return tuple(_text(item) for item in value)


def _words(value: Any) -> tuple[str, ...]:
    found = _texts(value)
    if not found or not found[0].strip():
        raise ValueError("is no command: a list of its program and arguments")
    return found


def _labels(value: Any) -> tuple[str, ...]:
    for label in _texts(value):
        if re.fullmatch(LABEL_PATTERN, label) is None:
            raise ValueError(f"has {label!r}, which is no label: lower-case letters, digits, '._=-'")
    return tuple(value)


def _sbatch(value: Any) -> tuple[str, ...]:
    for line in _texts(value):
        if not line.startswith("-"):
            raise ValueError(f"has {line!r}, which is no option of sbatch such as --partition=gpu")
        if re.match(r"(-J|--job-name|--parsable|--wrap|--array|-a)\b", line):
            raise ValueError(f"has {line!r}, by which a job could not be told from others")
    return tuple(value)


def _lines(value: Any) -> tuple[str, ...]:
    """Commands of a shell, verbatim; one may have line breaks of its own."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("is no list of texts")
    for line in value:
        if "\0" in line or line.rstrip("\n").endswith("\\"):
            raise ValueError(f"has {line!r}, which is no whole command")
    return tuple(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def _count(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"is no whole number of at least {least}")
        return value

    return read


def _some(value: Any) -> float:
    duration_s = seconds(value)
    if duration_s == 0:
        raise ValueError("is no time at all")
    return duration_s


def _megabytes(value: Any) -> int:
    size_mb = size_mb_of(value)
    if size_mb < 1:
        raise ValueError("is no memory at all")
    return size_mb


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"is none of {', '.join(allowed)}")
        return str(value)

    return read


def _host(value: Any) -> str:
    if re.fullmatch(r"(?!-)[A-Za-z0-9._:-]+", _text(value)) is None:
        raise ValueError("is no name or address of a machine")
    return value.lower()


def _port(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1024 <= value <= 65535:
        raise ValueError("is no port from 1024 to 65535")
    return value


def _login(value: Any) -> str:
    if _text(value) and re.fullmatch(r"(?!-)[^\s@]+@(?!-)[^\s@]+|(?!-)[^\s@]+", value) is None:
        raise ValueError("is no login such as user@host")
    return value


def _url(value: Any) -> str:
    parts = urlsplit(_text(value))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "'" in value:
        raise ValueError("is no address such as https://flows.example.org")
    return value.rstrip("/")


# ---------------------------------------------------------------- tables

_Readers = Mapping[str, Callable[[Any], Any]]

_PROFILE: _Readers = {
    "name": _name,
    "cpus": _count(1),
    "gpus": _count(0),
    "ram_mb": _megabytes,
    "labels": _labels,
    "parallel": _count(1),
    "prerun": _lines,
    "worker": _words,
}
_COMMON: _Readers = {
    "name": _name,
    "engine_url": _url,
    "insecure": _flag,
    "max_idle_s": seconds,
    "provision_timeout_s": seconds,
    "max_outstanding": _count(1),
    "on_stop": _one_of("cancel", "keep"),
    "poll_s": _some,
    "command_timeout_s": _some,
}
_TYPES: Mapping[str, tuple[_Readers, _Readers]] = {
    "slurm": (
        {
            "login": _login,
            "ssh_key": _text,
            "ssh_options": _texts,
            "route": _one_of("direct", "ssh"),
            "relay": _words,
            "relay_host": _host,
            "relay_port": _port,
        },
        {"sbatch": _sbatch},
    ),
    "command": ({"submit": _words, "status": _words, "cancel": _words}, {}),
}
"""Type → what a provisioner of it has besides, and what its profiles have."""

_NEEDED = {"slurm": ("name",), "command": ("name", "submit", "status", "cancel")}


def parse(found: Any, where: str, default_url: str = "") -> tuple[Settings, ...]:
    """The provisioners in a decoded file. Raises `Usage` naming the place and the field."""
    if not isinstance(found, list):
        raise Usage(f"{where} is no list of provisioners")
    read = tuple(_provisioner(item, f"{where}: provisioner {n}", default_url) for n, item in _counted(found))
    for settings in read:
        if sum(other.name == settings.name for other in read) > 1:
            raise Usage(f"{where}: two provisioners are called {settings.name}")
    return read


def _provisioner(found: Any, where: str, default_url: str) -> Settings:
    if not isinstance(found, dict):
        raise Usage(f"{where} is no object")
    given: dict[str, Any] = found
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise Usage(f"{where}: type {kind!r} is none of {', '.join(_TYPES)}")
    of_type, of_profile = _TYPES[kind]
    where = _named(where, given.get("name"))
    profiles = given.get("profiles")
    if not isinstance(profiles, list) or not profiles:
        raise Usage(f"{where}: profiles is no list with at least one profile")
    rest = {key: value for key, value in given.items() if key not in ("type", "profiles")}
    values = _values(rest, {**_COMMON, **of_type}, _NEEDED[kind], where)
    readers = {**_PROFILE, **of_profile}
    read = [_profile(p, readers, f"{where}: profile {n}") for n, p in _counted(profiles)]
    if len({profile.name for profile in read}) < len(read):
        raise Usage(f"{where}: two profiles have one name")
    settings = Settings(type=kind, profiles=tuple(read), **values)
    _check_route(settings, where)
    _check_url(settings, default_url, where)
    return settings


def _profile(found: Any, readers: _Readers, where: str) -> Profile:
    if not isinstance(found, dict):
        raise Usage(f"{where} is no object")
    given: dict[str, Any] = found
    where = _named(where, given.get("name"))
    return Profile(**_values(given, readers, ("name",), where))


def _values(given: dict[str, Any], readers: _Readers, needed: tuple[str, ...], where: str) -> dict[str, Any]:
    unknown = sorted(set(given) - set(readers))
    if unknown:
        raise Usage(f"{where} has unknown fields: {', '.join(unknown)}; it may have {', '.join(readers)}")
    missing = [name for name in needed if name not in given]
    if missing:
        raise Usage(f"{where} lacks {', '.join(missing)}")
    values: dict[str, Any] = {}
    for name, value in given.items():
        try:
            values[name] = readers[name](value)
        except ValueError as error:
            raise Usage(f"{where}: {name} {_shown(value)} {error}") from error
    return values


def _named(where: str, name: Any) -> str:
    known = isinstance(name, str) and re.fullmatch(NAME_PATTERN, name) is not None
    return f"{where} ({name})" if known else where


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_route(settings: Settings, where: str) -> None:
    """Through a login node there is no address of this server to name, and no link without TLS."""
    if settings.route != "ssh":
        of_relay = (settings.relay, settings.relay_host, settings.relay_port)
        if of_relay != (("farhand-worker",), "", 0):
            words = "relay, relay_host and relay_port"
            raise Usage(f"{where}: {words} are of the route ssh; set route, or leave them out")
        return
    if not settings.login:
        raise Usage(f"{where}: the route ssh leads through a login node; name it with login")
    if settings.engine_url or settings.insecure:
        raise Usage(f"{where}: workers come by ssh, to no engine_url of yours; leave it and insecure out")


def _check_url(settings: Settings, default_url: str, where: str) -> None:
    """An address without TLS leads off this machine only where that is said; nor is ours always theirs."""
    if settings.route == "ssh":
        return
    url = urlsplit(settings.engine_url or default_url)
    local = _is_loopback(url.hostname or "")
    if not settings.engine_url and settings.login and local:
        raise Usage(
            f"{where} lacks engine_url: this server tells its address as {default_url}, which is not to be"
            " reached from another machine; serve with --host and --public-host, or name a proxy's address"
        )
    if url.scheme == "http" and not local and not settings.insecure:
        raise Usage(
            f"{where}: engine_url {url.geturl()} is not encrypted; give an https address, or set insecure"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _counted(items: list[Any]) -> list[tuple[int, Any]]:
    return list(enumerate(items, 1))


# ---------------------------------------------------------------- files


def read(directory: Path, default_url: str = "") -> tuple[Settings, ...]:
    """What a directory says of provisioners. Raises `Usage`."""
    path, toml = directory / FILE_NAME, directory / TOML_NAME
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else None
        other = toml.read_text(encoding="utf-8") if toml.is_file() else ""
    except (OSError, ValueError) as error:
        raise Usage(f"what {directory} says of provisioners cannot be read: {error}") from error
    try:
        found = tomllib.loads(other).get("provisioner")
    except ValueError:
        found = None  # whoever reads the rest of that file says what is wrong with it
    if text is None:
        return () if found is None else parse(found, f"{TOML_NAME}: [[provisioner]]", default_url)
    if found is not None:
        raise Usage(f"provisioners are in {FILE_NAME} and in {TOML_NAME}; keep one of the two")
    try:
        decoded = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise Usage(f"{FILE_NAME} is no JSON: {error}") from error
    return parse(decoded, FILE_NAME, default_url)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found
