"""What ``@flow`` and ``@task`` take, checked when the function is decorated.

`Common`, `TaskOptions` and `FlowOptions` are the list: type checkers read them, and so does what refuses the
rest. docs/flows.md says what each is for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, TypedDict, Union

from farhand.errors import NotSupported, Usage

from .hooks import HOOKED, HookOrHooks, Hooks
from .retries import Condition, Delay, Duration, RetryOn, backoff, duration
from .sizes import Size, size_mb_of

if TYPE_CHECKING:
    from .schedules import Schedules
    from .services import Service

Labels = Union[str, Sequence[str], None]
Names = Union[str, Sequence[str], None]
Provided = Union[str, Mapping[str, Any], Sequence[Union[str, Mapping[str, Any]]], None]

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
POLICIES = ("require", "prefer")
PRIORITY_MAX = 1000

_LATER = frozenset(["cache", "env", "limits", "locks", "requires_python", "triggers"])


class Common(TypedDict, total=False):
    """What ``@flow`` and ``@task`` both take. Durations are seconds or text such as ``"30s"``."""

    name: Optional[str]
    tags: Names
    retries: int
    retry_delay: Delay
    retry_on: RetryOn
    crash_retries: int
    timeout: Optional[Duration]
    silence_timeout: Optional[Duration]
    priority: Optional[int]
    runs_on: str
    device: Labels
    device_policy: str
    cpus: Optional[int]
    gpus: Optional[int]
    ram: Optional[Size]
    flavor: str
    isolated: bool
    strict_lease: bool
    secrets: Names
    on_completed: HookOrHooks
    on_failed: HookOrHooks
    on_cancelled: HookOrHooks


class TaskOptions(Common, total=False):
    """What ``@task`` takes."""

    process: bool
    durable: bool
    requires: Provided
    provides: Provided


class FlowOptions(Common, total=False):
    """What ``@flow`` takes."""

    description: Optional[str]
    run_name: Optional[str]
    max_concurrent: Optional[int]
    on_crashed: HookOrHooks
    schedule: Schedules
    services: Union[Service, Sequence[Service], None]


class DeclaredOptions(FlowOptions, total=False):
    """What ``Flow("name", …)`` takes."""

    nodes: Sequence[Any]
    inputs: Provided
    outputs: Names


TAKEN: Dict[str, FrozenSet[str]] = {
    "flow": frozenset(FlowOptions.__annotations__),
    "task": frozenset(TaskOptions.__annotations__),
}
"""Decorator → the names it takes."""


class Options:
    """What a flow or task was decorated with, checked. Times in seconds; no limit is None."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        take = given.get
        self.retries = _count("retries", take("retries", 0))
        self.retry_delay = backoff(take("retry_delay", 0.0))
        self.retry_on = Condition(take("retry_on"))
        self.crash_retries = _count("crash_retries", take("crash_retries", 3))
        self.timeout_s = _limit("timeout", take("timeout"))
        self.silence_timeout_s = _limit("silence_timeout", take("silence_timeout"))
        self.priority = _priority(take("priority"))
        self.runs_on = _name("runs_on", take("runs_on", "any"))
        self.labels = _labels(take("device"))
        self.policy = _policy(take("device_policy", "require"))
        self.cpus = _amount("cpus", take("cpus"), 1)
        self.gpus = _amount("gpus", take("gpus"), 0)
        self.ram_mb = _megabytes("ram", take("ram"))
        self.flavor = _flavor(take("flavor"))
        self.strict_lease = bool(take("strict_lease"))
        self.isolated = bool(take("isolated"))
        self.process = bool(take("process"))
        self.durable = bool(take("durable"))
        self.secrets = _names("secrets", take("secrets"), NAME)
        self.tags = _names("tags", take("tags"), NAME)
        self.max_concurrent = _room(take("max_concurrent"))
        sized = any(amount is not None for amount in (self.cpus, self.gpus, self.ram_mb))
        self.places = bool(self.labels) or self.runs_on != "any" or sized or bool(self.flavor)
        """Whether a machine is asked for."""
        self.once = self.timeout_s is None and self.silence_timeout_s is None and not self.retries
        """Whether a call is tried once and may take what it takes."""

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


def refuse_unknown(decorator: str, given: Dict[str, Any]) -> None:
    """Refuse parameters that are not accepted: `NotSupported`, or TypeError when there is no such thing."""
    for name in given:
        if name in TAKEN[decorator]:
            continue
        if name in _LATER:
            raise NotSupported(f"@{decorator}({name}=…) is not supported yet; leave it out")
        raise TypeError(f"@{decorator} has no parameter {name!r}")


def hooks_of(given: Mapping[str, Any]) -> Hooks:
    """The hooks among the options. Raises `Usage`."""
    return Hooks(**{state: given.get(f"on_{state}") for state in HOOKED if f"on_{state}" in given})


_OF_JOBS = ("priority", "isolated", "crash_retries", "strict_lease", "device_policy")


def refuse_without_place(options: Options, given: Mapping[str, Any]) -> None:
    """Refuse what only a task with a machine of its own can have. Raises `Usage`."""
    for name in _OF_JOBS:
        if name in given and not options.places:
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


_NO_LABEL = "device must be a label such as 'gpu' or 'zone=eu', or a list of them"


def _labels(device: Labels) -> List[str]:
    if device is not None and not isinstance(device, (str, list, tuple, set, frozenset)):
        raise Usage(_NO_LABEL)
    names = [device] if isinstance(device, str) else list(device or ())
    return [_label(name) for name in names]


def _policy(value: str) -> str:
    if value not in POLICIES:
        raise Usage(f"device_policy must be one of {', '.join(POLICIES)}")
    return value


def _flavor(value: Optional[str]) -> str:
    if value and (not isinstance(value, str) or not NAME.fullmatch(value)):
        raise Usage("flavor must be the name of one; `farhand flavors list` shows them")
    return value or ""


def _room(value: Optional[int]) -> Optional[int]:
    if value is None:
        return None
    if _count("max_concurrent", value) == 0:
        raise Usage("max_concurrent must be at least 1; leave it out for no limit")
    return value


def _label(value: Any) -> str:
    name = value.split("=", 1)[0] if isinstance(value, str) else ""
    if not NAME.fullmatch(name):
        raise Usage(_NO_LABEL)
    return value
