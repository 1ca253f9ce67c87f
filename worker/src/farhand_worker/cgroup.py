"""The limits that cgroups put on this process, version 1 and 2 alike: pure over the files of the kernel.

A limit of any ancestor counts. Where the path of the process cannot be seen, as in a container without a
namespace of its own, what can be seen above it is looked at.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional, Tuple

_ROOT = "/sys/fs/cgroup"
_UNLIMITED_BYTES = 1 << 60
"""Version 1 writes a number beyond this for no limit."""

Read = Callable[[str], Optional[str]]


def cpu_quota(read: Read) -> Optional[float]:
    """How many cores the process may use at a time, None without a limit."""
    quotas = [_quota_v2(read(f"{place}/cpu.max")) for place in _places(read, "")]
    quotas += [
        _quota_v1(read(f"{place}/cpu.cfs_quota_us"), read(f"{place}/cpu.cfs_period_us"))
        for place in _places(read, "cpu")
    ]
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit(read: Read) -> Optional[int]:
    """How many bytes the process may use, None without a limit."""
    texts = [read(f"{place}/memory.max") for place in _places(read, "")]
    texts += [read(f"{place}/memory.limit_in_bytes") for place in _places(read, "memory")]
    limits = [int(text) for text in texts if text is not None and text.strip().isdigit()]
    return min((limit for limit in limits if limit < _UNLIMITED_BYTES), default=None)


def _places(read: Read, controller: str) -> Iterator[str]:
    """The directories that hold for this process, the nearest first; version 2 is the controller "" ."""
    for names, path in _memberships(read("/proc/self/cgroup")):
        if controller not in names:
            continue
        mount = f"{_ROOT}/{','.join(names)}" if controller else _ROOT
        parts = [part for part in path.split("/") if part and part != ".."]
        for length in range(len(parts), -1, -1):
            yield "/".join([mount, *parts[:length]])


def _memberships(text: Optional[str]) -> Iterator[Tuple[List[str], str]]:
    for line in (text or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            yield fields[1].split(","), fields[2]


def _quota_v2(text: Optional[str]) -> Optional[float]:
    fields = (text or "").split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return None  # "max 100000": no limit
    return int(fields[0]) / int(fields[1])


def _quota_v1(quota: Optional[str], period: Optional[str]) -> Optional[float]:
    texts = ((quota or "").strip(), (period or "").strip())
    if not all(text.isdigit() for text in texts):
        return None  # -1: no limit
    return int(texts[0]) / int(texts[1])
