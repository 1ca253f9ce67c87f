"""The one table of settings, and how a value is found: flag, environment, farhand.toml, default."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from farhand_worker.protocol import Times

from .errors import Usage
from .sdk.durations import seconds
from .sdk.sizes import size_bytes


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table. ``variable`` is its environment variable; ``name`` its key in farhand.toml."""

    name: str
    default: Any
    read: Callable[[Any], Any]
    help: str

    @property
    def variable(self) -> str:
        """FARHAND_ and the name in capitals."""
        return f"FARHAND_{self.name.upper()}"


def _whole(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError("is not a whole number") from None


def _port(value: Any) -> int:
    port = _whole(value)
    if not 0 <= port <= 65535:
        raise ValueError("is not a port between 0 and 65535")
    return port


def _count(value: Any) -> int:
    count = _whole(value)
    if count < 0:
        raise ValueError("is below zero")
    return count


def _some_seconds(value: Any) -> float:
    duration_s = seconds(value)
    if duration_s <= 0:
        raise ValueError("is no time at all; give more than 0 seconds")
    return duration_s


def _size(value: Any) -> int:
    size = size_bytes(value)
    if size < _SIZE_MIN:
        raise ValueError("is less than 1 MB")
    return size


def _base_path(value: Any) -> str:
    path = str(value).strip("/")
    return f"/{path}" if path else ""


def _domain(value: Any) -> str:
    name = str(value).strip().lower().removeprefix("*.").strip(".")
    if name and not _DOMAIN.fullmatch(name):
        raise ValueError("is no domain; one reads like services.example.org, without a scheme or a port")
    return name


def _networks(value: Any) -> tuple[str, ...]:
    names = [name.strip() for name in str(value).split(",") if name.strip()]
    for name in names:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise ValueError(f"has {name!r}, which is no address or network such as 10.0.0.0/8") from None
    return tuple(names)


def _log_format(value: Any) -> str:
    if value not in ("text", "json"):
        raise ValueError("is no form of log; give text or json")
    return str(value)


def _flag(value: Any) -> bool:
    known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}
    try:
        return known[str(value).lower()]
    except KeyError:
        raise ValueError("is neither true nor false") from None


def _cores() -> int:
    return os.cpu_count() or 1


def _home(value: Any) -> Path:
    return Path(str(value)).expanduser().absolute()


def _file(value: Any) -> Path | None:
    return Path(str(value)).expanduser().absolute() if str(value).strip() else None


def _database(value: Any) -> str:
    url = str(value).strip()
    if url and not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("is no address of a database; one reads like postgresql://user@host/name")
    return url


_TIMES = Times()
_DOMAIN = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_SIZE_MIN = 1024 * 1024

SETTINGS: tuple[Setting, ...] = (
    Setting("home", "~/.farhand", _home, "Where the store, blobs, keys and journals lie."),
    Setting("database", "", _database, "The PostgreSQL database of the store; none: SQLite in the home."),
    Setting(
        "migrate_without_backup",
        False,
        _flag,
        "Upgrade a store of an older version without a copy of it first.",
    ),
    Setting("keep", "30d", seconds, "How long ended runs are kept, with all they left; 0 keeps for ever."),
    Setting("keep_audit", "365d", seconds, "How long the audit log goes back; 0 keeps all of it."),
    Setting("host", "127.0.0.1", str, "The address the server listens on."),
    Setting("port", 8420, _port, "The port the server listens on; 0 takes a free one."),
    Setting(
        "parallel",
        _cores(),
        _count,
        "Slots of the server's own processors, 0 for none: workers do all of it; default: one a core.",
    ),
    Setting("base_path", "", _base_path, "The path under which a proxy publishes the server."),
    Setting("public_host", "", str, "Another host name by which the server is reached, for the Host check."),
    Setting(
        "services_host",
        "localhost",
        _domain,
        "The domain below which services have hosts of their own, NAME.DOMAIN, for browsers; none: no hosts.",
    ),
    Setting(
        "trusted_proxy",
        "",
        _networks,
        "Addresses or networks of proxies whose forwarded headers are believed, separated by commas.",
    ),
    Setting(
        "tls_cert", "", _file, "The server's own certificate and its chain in PEM; none behind a TLS proxy."
    ),
    Setting("tls_key", "", _file, "The key of that certificate in PEM, without a password."),
    Setting("log_format", "text", _log_format, "How the server logs: text, or json, an object a line."),
    Setting("reserve_after_s", 60.0, seconds, "How long a job waits before a worker keeps room for it."),
    Setting("heartbeat_s", _TIMES.heartbeat_s, _some_seconds, "How often a worker says that it is there."),
    Setting("lease_s", _TIMES.lease_s, _some_seconds, "How long an attempt may run unheard of."),
    Setting("margin_s", _TIMES.margin_s, seconds, "What the server waits beyond a lease."),
    Setting("reattach_s", _TIMES.reattach_s, seconds, "How long a started server waits for its workers."),
    Setting("outage_s", _TIMES.outage_s, seconds, "How long workers ride out a server that is down."),
    Setting("handoff_s", _TIMES.handoff_s, _some_seconds, "How long a worker may take to accept a job."),
    Setting(
        "behind_s",
        _TIMES.behind_s,
        seconds,
        "How long short jobs may wait on a slot behind one that turns out long; 0 sends none ahead.",
    ),
    Setting("grace_s", _TIMES.grace_s, seconds, "How long cancelled work has before it is killed."),
    Setting("inspect_s", 60.0, _some_seconds, "How long a module of a project may take to import."),
    Setting(
        "import_timeout_s", 300.0, _some_seconds, "How long a worker may take to import a flow's module."
    ),
    Setting(
        "import_again_s",
        30.0,
        _some_seconds,
        "How long after an import that failed it is tried again there, doubling up to twenty times that.",
    ),
    Setting(
        "service_answer_s",
        300.0,
        seconds,
        "How long a service that is used through the server may take to begin an answer; 0 is for ever.",
    ),
    Setting("lost_s", _TIMES.lost_s, seconds, "How long a closed socket is taken for a blip."),
    Setting("engine_memory", "2G", _size, "An engine that is larger than this after a job is not kept."),
    Setting("spool_limit", "256M", _size, "How much of a job's output may wait to be recorded."),
)
_CLOCKWORK = tuple(field.name for field in fields(Times) if field.name in {s.name for s in SETTINGS})
_BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Config:
    """The values in force, and where each was found."""

    home: Path
    database: str
    migrate_without_backup: bool
    keep: float
    keep_audit: float
    host: str
    port: int
    parallel: int
    base_path: str
    public_host: str
    services_host: str
    trusted_proxy: tuple[str, ...]
    tls_cert: Path | None
    tls_key: Path | None
    inspect_s: float
    import_timeout_s: float
    import_again_s: float
    reserve_after_s: float
    service_answer_s: float
    engine_memory: int
    spool_limit: int
    log_format: str
    times: Times
    root: Path | None
    sources: Mapping[str, str]


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    root: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read every setting. Raises `Usage` naming the setting, the source and what is wrong with the value."""
    environ = os.environ if environment is None else environment
    sources: dict[str, str] = {}
    values: dict[str, Any] = {}
    layers = (
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None}),
        ("environment", {s.name: environ[s.variable] for s in SETTINGS if s.variable in environ}),
        ("farhand.toml", _read_toml(root)),
    )
    for setting in SETTINGS:
        source, raw = next(
            ((name, layer[setting.name]) for name, layer in layers if setting.name in layer),
            ("default", setting.default),
        )
        try:
            values[setting.name] = setting.read(raw)
        except (ValueError, TypeError) as error:
            raise Usage(f"{_where(setting, source)}: {raw!r} {error}") from error
        sources[setting.name] = source
    times = Times(**{name: values.pop(name) for name in _CLOCKWORK})
    if times.lease_s <= times.heartbeat_s:
        raise Usage(f"lease_s ({times.lease_s:g}) must be longer than heartbeat_s ({times.heartbeat_s:g})")
    return Config(times=times, root=root, sources=sources, **values)


HIDDEN = "(hidden)"
SECRETS = ("FARHAND_ADMIN_TOKEN", "FARHAND_SEALING_KEY")
"""Secrets that the environment may hold, or name a file of with ``_FILE``."""


def shown(config: Config, environment: Mapping[str, str] | None = None) -> list[tuple[str, str, str]]:
    """Every setting with its value and source; of what is secret, only that it is there."""
    environ = os.environ if environment is None else environment
    told = [
        (setting.name, _text(setting.name, _value(config, setting.name)), config.sources[setting.name])
        for setting in SETTINGS
    ]
    given = (name for secret in SECRETS for name in (secret, f"{secret}_FILE") if environ.get(name))
    return told + [(name.removeprefix("FARHAND_").lower(), HIDDEN, "environment") for name in given]


def _value(config: Config, name: str) -> Any:
    return getattr(config if hasattr(config, name) else config.times, name)


def _text(name: str, value: Any) -> str:
    """A value as text; the password in a database's address is hidden."""
    if name == "database":
        address = re.sub(r"(://[^:/@]*):[^@]*@", rf"\1:{HIDDEN}@", str(value))
        return re.sub(r"(password=)[^&\s]*", rf"\1{HIDDEN}", address)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if value is None:
        return ""
    unit = _UNITS.get(_BY_NAME[name].read) if not name.endswith("_s") else None
    if unit and value:
        exact = (f"{value / amount:g}{letter}" for amount, letter in unit if value % amount == 0)
        return next(exact, f"{value:g}")
    return f"{value:g}" if isinstance(value, float) else str(value)


_SIZES = ((1024**3, "G"), (1024**2, "M"), (1024, "K"), (1, " bytes"))
_DURATIONS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_UNITS: dict[Callable[[Any], Any], tuple[tuple[int, str], ...]] = {_size: _SIZES, seconds: _DURATIONS}


def _where(setting: Setting, source: str) -> str:
    """A setting as whoever gave it knows it."""
    if source == "flag":
        return f"--{setting.name.replace('_', '-')}"
    return setting.variable if source == "environment" else f"{setting.name} in {source}"


def _read_toml(root: Path | None) -> dict[str, Any]:
    path = None if root is None else root / "farhand.toml"
    if path is None or not path.exists():
        return {}
    try:
        server: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("server", {})
    except (OSError, ValueError) as error:
        raise Usage(f"{path} cannot be read: {error}") from error
    if not isinstance(server, dict):
        raise Usage(f"{path} has no table [server], but server = {server!r}")
    unknown = sorted(set(server) - set(_BY_NAME))
    if unknown:
        raise Usage(f"{path} has unknown settings under [server]: {', '.join(unknown)}")
    return server
