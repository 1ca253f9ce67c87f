"""What ``@flow`` and ``@task`` accept, checked when the function is decorated."""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Union

from farhand.errors import NotSupported, Usage

from .durations import seconds

Duration = Union[int, float, str]
"""Seconds, or text with a unit: ``"500ms"``, ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``."""

Labels = Union[str, Sequence[str], None]

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
POLICIES = ("require", "prefer")

_LATER: FrozenSet[str] = frozenset(
    [
        "cache",
        "cpus",
        "durable",
        "env",
        "flavor",
        "gpus",
        "isolated",
        "limits",
        "locks",
        "on_failure",
        "priority",
        "processes",
        "ram",
        "requires_python",
        "retry_jitter",
        "retry_on",
        "schedule",
        "secrets",
        "silence_timeout",
        "tags",
        "triggers",
    ]
)


class Options:
    """The settings of a flow or task. Times in seconds; no timeout is None."""

    __slots__ = (
        "crash_retries",
        "labels",
        "policy",
        "retries",
        "retry_delay_s",
        "runs_on",
        "strict_lease",
        "timeout_s",
    )

    def __init__(
        self,
        retries: int = 0,
        retry_delay: Duration = 0.0,
        crash_retries: int = 3,
        timeout: Optional[Duration] = None,
        runs_on: str = "any",
        device: Labels = None,
        device_policy: str = "require",
        strict_lease: bool = False,
    ) -> None:
        self.retries = _count("retries", retries)
        self.retry_delay_s = _duration("retry_delay", retry_delay)
        self.crash_retries = _count("crash_retries", crash_retries)
        self.timeout_s = None if timeout is None else _duration("timeout", timeout)
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise Usage("timeout must be more than nothing; leave it out for no limit")
        self.runs_on = _name("runs_on", runs_on)
        names = [device] if isinstance(device, str) else list(device or ())
        self.labels: List[str] = [_label(name) for name in names]
        if device_policy not in POLICIES:
            raise Usage(f"device_policy must be one of {', '.join(POLICIES)}")
        self.policy = device_policy
        self.strict_lease = bool(strict_lease)

    @property
    def places(self) -> bool:
        """Whether a machine is asked for."""
        return bool(self.labels) or self.runs_on != "any"

    def ask(self) -> Dict[str, Any]:
        """What is asked of a machine."""
        return {"labels": self.labels, "policy": self.policy, "runs_on": self.runs_on}

    def settings(self) -> Dict[str, Any]:
        """What the queue and the agent need to know."""
        return {
            "retries": self.retries,
            "retry_delay_s": self.retry_delay_s,
            "crash_retries": self.crash_retries,
            "timeout_s": self.timeout_s,
            "strict_lease": self.strict_lease,
        }


def refuse_unknown(decorator: str, unknown: Dict[str, Any]) -> None:
    """Refuse parameters that are not accepted: `NotSupported`, or TypeError when there is no such thing."""
    for name in unknown:
        if name in _LATER:
            raise NotSupported(f"@{decorator}({name}=…) is not supported yet; leave it out")
        raise TypeError(f"@{decorator} has no parameter {name!r}")


def _duration(name: str, value: Duration) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise Usage(f"{name} {error}") from None


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Usage(f"{name} must be a whole number, not negative")
    return value


def _name(parameter: str, value: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise Usage(f"{parameter} must be any, server, worker or a worker's name")
    return value


def _label(value: Any) -> str:
    name = value.split("=", 1)[0] if isinstance(value, str) else ""
    if not NAME.fullmatch(name):
        raise Usage("device must be a label such as 'gpu' or 'zone=eu', or a list of them")
    return value
