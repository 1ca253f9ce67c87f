"""What may be said of a service: checked where it is written down, and again by the server that takes it."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from farhand.errors import Usage

from .references import hex_of

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PORT_MAX = 65535
SECONDS_MAX = 86400.0
_HEALTH = re.compile(r"/[!-~]*")


def check(name: Any, spec: Dict[str, Any], secrets: List[str]) -> None:
    """Raises `Usage`, naming the service, unless ``spec`` (the fields of `ServiceSpec`) can be run."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Usage(f"the name of a service matches {NAME.pattern}, not {name!r}")
    for field, checked in _CHECKS.items():
        problem = checked(spec.get(field))
        if problem:
            raise Usage(f"service {name!r}: {field} {problem}")
    words = [*spec["command"], *spec["env"].values()]
    if spec["port"] is None and not any("{port}" in word for word in words):
        raise Usage(f"service {name!r}: it needs a port, or {{port}} in its command to be told a free one")
    if not spec["weights"] and any("{weights}" in word for word in words):
        raise Usage(f"service {name!r}: its command names {{weights}}, and it has none")
    taken = {re.sub("[^A-Z0-9]", "_", secret.upper()) for secret in secrets} & set(spec["env"])
    if taken:
        raise Usage(f"service {name!r}: {sorted(taken)[0]} is in env, and holds a secret too")


def _command(value: Any) -> str:
    if isinstance(value, str) or not isinstance(value, (list, tuple)) or not value:
        return 'must be a list of words, such as ["python", "-m", "http.server"]; no shell reads it'
    if not all(isinstance(word, str) for word in value) or not value[0]:
        return "must be a list of words"
    return "may hold no NUL" if any("\0" in word for word in value) else ""


def _port(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PORT_MAX:
        return f"must be a whole number from 1 to {PORT_MAX}; leave it out for a free one"
    return ""


def _health(value: Any) -> str:
    if value is None or (isinstance(value, str) and _HEALTH.fullmatch(value)):
        return ""
    return "must be a path such as '/health', or None to ask nothing"


def _env(value: Any) -> str:
    if not isinstance(value, dict):
        return "must map names to text"
    for name, text in value.items():
        if not isinstance(name, str) or not VARIABLE.fullmatch(name):
            return f"has {name!r}, which names no variable"
        if name.startswith("FARHAND_"):
            return f"has {name}; names that begin with FARHAND_ are farhand's own"
        if not isinstance(text, str) or "\0" in text:
            return f"must have text for {name}, without NUL"
    return ""


def _weights(value: Any) -> str:
    try:
        if value != "":
            hex_of(value)
    except (ValueError, TypeError, AttributeError):
        return "must be a saved artifact, or its digest such as 'sha256:…'"
    return ""


def _seconds(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= SECONDS_MAX:
        return f"must be more than nothing, and at most {SECONDS_MAX:g} seconds"
    return ""


_CHECKS = {
    "command": _command,
    "port": _port,
    "health": _health,
    "env": _env,
    "weights": _weights,
    "stop_s": _seconds,
    "start_s": _seconds,
    "health_timeout_s": _seconds,
}
