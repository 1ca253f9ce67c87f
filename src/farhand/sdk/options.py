"""What ``@flow`` and ``@task`` accept, checked when the function is decorated."""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Union

from farhand.errors import NotSupported, Usage

from .retries import Condition, Delay, Duration, RetryOn, backoff, duration
from .sizes import Size, size_mb_of

Labels = Union[str, Sequence[str], None]
Names = Union[str, Sequence[str], None]

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
POLICIES = ("require", "prefer")
PRIORITY_MAX = 1000

_LATER: FrozenSet[str] = frozenset(
    [
        "cache",
        "env",
        "limits",
        "locks",
        "requires_python",
        "schedule",
        "triggers",
    ]
)


class Options:
    """The settings of a flow or task. Times in seconds; no limit is None."""

    __slots__ = (
        "cpus",
        "crash_retries",
        "durable",
        "flavor",
        "gpus",
        "isolated",
        "labels",
        "max_concurrent",
        "policy",
        "priority",
        "process",
        "ram_mb",
        "retries",
        "retry_delay",
        "retry_on",
        "runs_on",
        "secrets",
        "silence_timeout_s",
        "strict_lease",
        "tags",
        "timeout_s",
    )

    def __init__(
        self,
        *,
        retries: int = 0,
        retry_delay: Delay = 0.0,
        retry_on: RetryOn = None,
        crash_retries: int = 3,
        timeout: Optional[Duration] = None,
        silence_timeout: Optional[Duration] = None,
        priority: Optional[int] = None,
        runs_on: str = "any",
        device: Labels = None,
        device_policy: str = "require",
        cpus: Optional[int] = None,
        gpus: Optional[int] = None,
        ram: Optional[Size] = None,
        flavor: str = "",
        strict_lease: bool = False,
        isolated: bool = False,
        secrets: Names = None,
        tags: Names = None,
        max_concurrent: Optional[int] = None,
        process: bool = False,
        durable: bool = False,
    ) -> None:
        self.retries = _count("retries", retries)
        self.retry_delay = backoff(retry_delay)
        self.retry_on = Condition(retry_on)
        self.crash_retries = _count("crash_retries", crash_retries)
        self.timeout_s = _limit("timeout", timeout)
        self.silence_timeout_s = _limit("silence_timeout", silence_timeout)
        self.priority = _priority(priority)
        self.runs_on = _name("runs_on", runs_on)
        names = [device] if isinstance(device, str) else list(device or ())
        self.labels: List[str] = [_label(name) for name in names]
        if device_policy not in POLICIES:
            raise Usage(f"device_policy must be one of {', '.join(POLICIES)}")
        self.policy = device_policy
        self.cpus = _amount("cpus", cpus, 1)
        self.gpus = _amount("gpus", gpus, 0)
        self.ram_mb = _megabytes("ram", ram)
        if flavor and (not isinstance(flavor, str) or not NAME.fullmatch(flavor)):
            raise Usage("flavor must be the name of one; `farhand flavors list` shows them")
        self.flavor = flavor or ""
        self.strict_lease = bool(strict_lease)
        self.isolated = bool(isolated)
        self.process = bool(process)
        self.durable = bool(durable)
        self.secrets = _names("secrets", secrets, NAME)
        self.tags = _names("tags", tags, NAME)
        self.max_concurrent = None if max_concurrent is None else _count("max_concurrent", max_concurrent)
        if self.max_concurrent == 0:
            raise Usage("max_concurrent must be at least 1; leave it out for no limit")

    @property
    def places(self) -> bool:
        """Whether a machine is asked for."""
        sized = any(amount is not None for amount in (self.cpus, self.gpus, self.ram_mb))
        return bool(self.labels) or self.runs_on != "any" or sized or bool(self.flavor)

    def ask(self) -> Dict[str, Any]:
        """What is asked of a machine."""
        return {
            "labels": self.labels,
            "policy": self.policy,
            "runs_on": self.runs_on,
            "cpus": self.cpus,
            "gpus": self.gpus,
            "ram_mb": self.ram_mb,
            "flavor": self.flavor,
        }

    def asked(self) -> str:
        """The same in words."""
        words = [f"device {', '.join(self.labels)}"] if self.labels else []
        if self.runs_on != "any":
            words.append(f"runs_on={self.runs_on!r}")
        amounts = (("cpus", self.cpus), ("gpus", self.gpus), ("MB of ram", self.ram_mb))
        words += [f"{amount} {name}" for name, amount in amounts if amount is not None]
        return ", ".join([*words, f"flavor {self.flavor}"] if self.flavor else words)

    def settings(self) -> Dict[str, Any]:
        """What the queue and the agent need to know."""
        return {
            "retries": self.retries,
            "retry_delay": self.retry_delay.described(),
            "crash_retries": self.crash_retries,
            "timeout_s": self.timeout_s,
            "silence_timeout_s": self.silence_timeout_s,
            "strict_lease": self.strict_lease,
            "isolated": self.isolated,
            "priority": self.priority,
            "max_concurrent": self.max_concurrent,
            "secrets": self.secrets,
        }


_EVERYWHERE = (
    "retries retry_delay retry_on crash_retries timeout silence_timeout priority runs_on device device_policy"
    " cpus gpus ram flavor strict_lease isolated secrets tags"
)
ACCEPTED: Dict[str, FrozenSet[str]] = {
    "flow": frozenset(f"{_EVERYWHERE} max_concurrent".split()),
    "task": frozenset(f"{_EVERYWHERE} process durable".split()),
}
"""Decorator → the names it passes to `Options`."""


def refuse_unknown(decorator: str, given: Dict[str, Any]) -> None:
    """Refuse parameters that are not accepted: `NotSupported`, or TypeError when there is no such thing."""
    for name in given:
        if name in ACCEPTED[decorator]:
            continue
        if name in _LATER:
            raise NotSupported(f"@{decorator}({name}=…) is not supported yet; leave it out")
        raise TypeError(f"@{decorator} has no parameter {name!r}")


def refuse_without_place(options: Options) -> None:
    """Refuse what only a task with a machine of its own can have. Raises `Usage`."""
    for name, given in (("priority", options.priority is not None), ("isolated", options.isolated)):
        if given and not options.places:
            raise Usage(
                f"@task({name}=…) is for tasks that ask for a machine, with device, runs_on or a size"
            )
    if options.process and options.places:
        raise Usage("a task that asks for a machine has a process there already; leave process out")


def _limit(name: str, value: Optional[Duration]) -> Optional[float]:
    if value is None:
        return None
    limit_s = duration(name, value)
    if limit_s <= 0:
        raise Usage(f"{name} must be more than nothing; leave it out for no limit")
    return limit_s


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Usage(f"{name} must be a whole number, not negative")
    return value


def _amount(name: str, value: Optional[int], least: int) -> Optional[int]:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Usage(f"{name} must be a whole number, at least {least}; leave it out to ask for none")
    return value


def _megabytes(name: str, value: Optional[Size]) -> Optional[int]:
    if value is None:
        return None
    try:
        size_mb = size_mb_of(value)
    except ValueError as error:
        raise Usage(f"{name} {error}") from error
    if size_mb < 1:
        raise Usage(f"{name} must be at least a megabyte; leave it out to ask for none")
    return size_mb


def _priority(value: Optional[int]) -> Optional[int]:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > PRIORITY_MAX:
        raise Usage(f"priority must be a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}")
    return value


def _names(parameter: str, value: Names, pattern: re.Pattern[str]) -> List[str]:
    names = [value] if isinstance(value, str) else list(value or ())
    for name in names:
        if not isinstance(name, str) or not pattern.fullmatch(name):
            raise Usage(f"{parameter} must be names that match {pattern.pattern}, not {name!r}")
    return names


def _name(parameter: str, value: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise Usage(f"{parameter} must be any, server, worker or a worker's name")
    return value


def _label(value: Any) -> str:
    name = value.split("=", 1)[0] if isinstance(value, str) else ""
    if not NAME.fullmatch(name):
        raise Usage("device must be a label such as 'gpu' or 'zone=eu', or a list of them")
    return value
