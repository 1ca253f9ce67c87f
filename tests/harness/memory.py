"""Control groups with little memory, in which the kernel kills what takes more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")
_LIMITS = {
    "memory.limit_in_bytes": "memory.memsw.limit_in_bytes",  # version 1: memory, then memory and swap
    "memory.max": "memory.swap.max",  # version 2: memory, then swap
}

_TOLD = ("memory.oom_control", "memory.events")


@dataclass(frozen=True)
class Group:
    """One group: a directory of the kernel's."""

    directory: Path

    @property
    def entrance(self) -> Path:
        """The file that takes the id of a process to be in it."""
        return self.directory / "cgroup.procs"

    def killed(self) -> int:
        """How many processes in it the kernel has killed for their memory."""
        told = next(path for name in _TOLD if (path := self.directory / name).exists())
        counts = dict(line.split() for line in told.read_text().splitlines())
        return int(counts["oom_kill"])


@contextlib.contextmanager
def small_group(size_bytes: int) -> Iterator[Group]:
    """A group of that much memory and no swap. Skips where none can be made."""
    group, reason = None, "this machine has no control groups for memory"
    for parent in _own_groups():
        try:
            group = _made(parent / f"farhand-test-{os.getpid()}", size_bytes)
            break
        except OSError as error:
            reason = f"no control group can be made in {parent} ({error.strerror})"
    if group is None:
        pytest.skip(reason)
    try:
        yield Group(group)
    finally:
        group.rmdir()


def _own_groups() -> Iterator[Path]:
    """The groups this process is in that may limit memory, by either version."""
    own = Path("/proc/self/cgroup")
    for line in own.read_text().splitlines() if own.exists() else []:
        _, kinds, path = line.split(":", 2)
        if "memory" in kinds.split(","):
            yield _ROOT / "memory" / path.lstrip("/")
        elif not kinds:
            yield _ROOT / path.lstrip("/")


def _made(group: Path, size_bytes: int) -> Path:
    group.mkdir()
    try:
        limit = next((name for name in _LIMITS if (group / name).exists()), None)
        if limit is None:
            raise OSError(0, "it does not limit memory")
        (group / limit).write_text(str(size_bytes))
        if (group / _LIMITS[limit]).exists():
            (group / _LIMITS[limit]).write_text(str(size_bytes if "memsw" in _LIMITS[limit] else 0))
    except BaseException:
        group.rmdir()
        raise
    return group
