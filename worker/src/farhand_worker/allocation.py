"""The batch scheduler's job that this worker is, if it is one: by its rules the machine is taken away.

Slurm says when by SLURM_JOB_END_TIME (22.05 does not; the script that farhand submits finds it out then). A
SIGTERM in an allocation is no polite request: what does not end within seconds is killed. So there the first
one ends engines with grace, and shortly before the end the worker does the same by itself. SIGUSR1, which
many have Slurm send before the end, means no less.
"""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass
from typing import Mapping, NamedTuple, Optional

JOB_VARIABLE, END_VARIABLE = "SLURM_JOB_ID", "SLURM_JOB_END_TIME"

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""What a scheduler says that it takes the machine away by."""

_GOODBYE_S = 10.0
_DRAIN_S = 60.0
_log = logging.getLogger("farhand.worker")


@dataclass(frozen=True)
class Allocation:
    """The scheduler's id of this job; ``ends_at`` is on the wall clock, None where there is no limit."""

    job: str
    ends_at: Optional[float] = None


class Leads(NamedTuple):
    """How long before the end nothing new is taken, and engines are ended with grace."""

    drain_s: float
    stop_s: float


def allocation(environ: Mapping[str, str]) -> Optional[Allocation]:
    """What the environment says; None outside of any allocation."""
    job = environ.get(JOB_VARIABLE, "").strip()
    if not job:
        return None
    text = environ.get(END_VARIABLE, "").strip()
    if text and not text.isdigit():
        _log.warning("%s is %r, which is no moment; its end is not known", END_VARIABLE, text)
        text = ""
    return Allocation(job, float(text) if text else None)


def leads(left_s: float, grace_s: float) -> Leads:
    """The leads in an allocation that has ``left_s`` to go; of a short one no more than half is spent so."""
    stop_s = min(grace_s + _GOODBYE_S, left_s / 4)
    return Leads(min(stop_s + _DRAIN_S, left_s / 2), stop_s)
