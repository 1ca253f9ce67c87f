"""What a job asks of a machine, and what else its flow or task was decorated with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job asks of a machine. ``runs_on``: any, server, worker, or a worker's name.

    An amount is None where nothing is asked; ``gpus`` 0 asks to be shown none. A job has the amounts of its
    ``flavor`` from the moment it is made, where it gives none of its own. ``requires_python`` is the
    project's, such as ``>=3.10,<4``. ``slots`` is 0 for what takes none.
    """

    labels: tuple[str, ...] = ()
    policy: str = "require"
    runs_on: str = "any"
    cpus: int | None = None
    gpus: int | None = None
    ram_mb: int | None = None
    flavor: str = ""
    requires_python: str = ""
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Flavor:
    """A named size. An amount is None where the flavor says nothing of it."""

    name: str
    cpus: int | None
    gpus: int | None
    ram_mb: int | None
    updated_at: float = 0.0
    updated_by: str = ""


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """Delays before retries: ``seconds`` first, then the last of them times ``factor``, up to ``cap_s``.

    ``jitter`` is the share by which each may differ.
    """

    seconds: tuple[float, ...] = (0.0,)
    factor: float = 1.0
    cap_s: float | None = None
    jitter: float = 0.0


AT_ONCE = RetryDelay()
"""No delay."""


@dataclass(frozen=True, slots=True)
class Hook:
    """What a flow has called when a run ends in ``state``; ``index`` tells those of one state apart."""

    state: str
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What a flow or task was decorated with, as far as the queue and the agent need it.

    ``in_order`` is set by a retry with other code or parameters: what it takes over is good only so far.
    ``timeout_words`` and ``silence_words`` are said of a passed limit, where the general words are not meant.
    ``along`` names what it yields that others read while it runs.
    """

    retries: int = 0
    retry_delay: RetryDelay = AT_ONCE
    crash_retries: int = 3
    timeout_s: float | None = None
    silence_timeout_s: float | None = None
    strict_lease: bool = False
    isolated: bool = False
    priority: int | None = None
    max_concurrent: int | None = None
    secrets: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    in_order: bool = False
    timeout_words: str = ""
    silence_words: str = ""
    along: tuple[str, ...] = ()
