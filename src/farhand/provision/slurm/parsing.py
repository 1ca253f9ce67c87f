"""What Slurm's commands print, as records. Pure: banners of login shells are passed over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..interface import ENDED, ENDING, PENDING, RUNNING, Seen

STATES: Mapping[str, str] = {
    "PENDING": PENDING,
    "CONFIGURING": PENDING,
    "REQUEUED": PENDING,
    "REQUEUE_FED": PENDING,
    "REQUEUE_HOLD": PENDING,
    "RESV_DEL_HOLD": PENDING,
    "SPECIAL_EXIT": PENDING,
    "PREEMPTED": PENDING,
    "RUNNING": RUNNING,
    "COMPLETING": ENDING,
    "RESIZING": RUNNING,
    "SIGNALING": RUNNING,
    "STAGE_OUT": RUNNING,
    "STOPPED": RUNNING,
    "SUSPENDED": RUNNING,
    "BOOT_FAIL": ENDED,
    "CANCELLED": ENDED,
    "COMPLETED": ENDED,
    "DEADLINE": ENDED,
    "FAILED": ENDED,
    "NODE_FAIL": ENDED,
    "OUT_OF_MEMORY": ENDED,
    "REVOKED": ENDED,
    "TIMEOUT": ENDED,
}
"""Slurm's state → what follows. What was preempted may be put back into the queue, and is waited for."""

FORMAT = "%i|%T|%j|%r"
"""What squeue is asked to print: id, state, name, reason."""

_ID = re.compile(r"(?:^|\s)(\d+)(;[A-Za-z0-9._-]+)?\s*$")
_SUBMITTED = re.compile(r"Submitted batch job (\d+)(?: on cluster ([A-Za-z0-9._-]+))?")
_NEVER = frozenset(
    {"PartitionTimeLimit", "PartitionNodeLimit", "BadConstraints", "AccountNotAllowed", "QOSNotAllowed"}
)
_NO_REASON = ("", "None", "(null)")


@dataclass(frozen=True, slots=True)
class Line:
    """A job of squeue's."""

    id: str
    name: str
    state: str
    reason: str

    def seen(self) -> Seen:
        """What that means. A state of a later Slurm that is not known here means that it is still there."""
        words = self.state if self.reason in _NO_REASON else f"{self.state}: {self.reason}"
        return Seen(STATES.get(self.state, PENDING), words, self.id)


def never_starts(reason: str) -> bool:
    """Whether what Slurm says of a job that waits is no matter of time."""
    return reason.rpartition(": ")[2].strip("()") in _NEVER


def submitted(text: str) -> str:
    """The id that sbatch printed, ``id;cluster`` where it names one; empty where there is none."""
    for line in reversed(text.splitlines()):
        told = _SUBMITTED.search(line)
        if told is not None:
            return told[1] if told[2] is None else f"{told[1]};{told[2]}"
        bare = _ID.fullmatch(line) if line.strip() else None
        if bare is not None:
            return bare[1] + (bare[2] or "")
    return ""


def without_parsable(text: str) -> bool:
    """Whether sbatch refused ``--parsable``, as wrappers of some sites do."""
    return "parsable" in text and re.search(r"unrecogni[sz]ed|unknown|invalid", text, re.I) is not None


def queue(text: str, cluster: str = "") -> list[Line]:
    """The jobs that squeue listed in `FORMAT`."""
    lines: list[Line] = []
    for line in text.splitlines():
        parts = line.split("|", 3)
        if len(parts) == 4 and re.fullmatch(r"\d+", parts[0].strip()):
            number = parts[0].strip() + (f";{cluster}" if cluster else "")
            lines.append(Line(number, parts[2].strip(), parts[1].strip(), parts[3].strip()))
    return lines


def by_name(lines: Iterable[Line], names: Iterable[str]) -> dict[str, list[Line]]:
    """The jobs of each name, the one to go by first: one that lives, the older of two.

    A cluster may have been asked by its name and as the one that commands go to: that is one job, not two.
    """
    found: dict[str, list[Line]] = {name: [] for name in names}
    for line in lines:
        alike = found.get(line.name)
        if alike is not None and all(_number(line) != _number(other) for other in alike):
            alike.append(line)
    for alike in found.values():
        alike.sort(key=lambda line: (_ORDER[line.seen().state], _number(line)))
    return {name: alike for name, alike in found.items() if alike}


def _number(line: Line) -> int:
    return int(line.id.partition(";")[0])


_ORDER = {RUNNING: 0, PENDING: 1, ENDING: 2, ENDED: 3}


def shown(text: str) -> tuple[Seen | None, str]:
    """What ``scontrol show job -o`` told: how the job is, and the file of its output."""
    state = re.search(r"\bJobState=(\S+)", text)
    if state is None:
        return None, ""
    number, reason = re.search(r"\bJobId=(\d+)", text), re.search(r"\bReason=(\S+)", text)
    line = Line(number[1] if number else "", "", state[1], reason[1] if reason else "")
    output = re.search(r"\bStdOut=(\S+)", text)
    return line.seen(), output[1] if output else ""


def accounted(text: str) -> Seen | None:
    """How a job that the controller does not know any more ended, by ``sacct -X -n -P
    --format=JobID,State,ExitCode``. It has ended, whatever state its record was left in."""
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == 3 and parts[0].isdigit():
            state = parts[1].split(" ")[0]
            return Seen(ENDED, f"{state}, exit {parts[2]}", parts[0])
    return None


def is_unknown(text: str) -> bool:
    """Whether Slurm says that there is no such job."""
    return re.search(r"invalid job id", text, re.I) is not None


def last_words(output: str, ours: str, limit: int = 300) -> str:
    """What a job's output says of its end: our own last line where there is one, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(ours)] or lines
    return said[-1].removeprefix(ours).strip()[:limit] if said else ""


def complaint(text: str, limit: int = 300) -> str:
    """What went wrong in a command's own words: the lines of errors, else all, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [
        line for line in lines if re.search(r"error|fail|denied|refused|timed out|unable|invalid", line, re.I)
    ]
    return "; ".join(errors or lines)[:limit]
