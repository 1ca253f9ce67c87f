"""The doctor: what this server runs on, what state that is in, and what is wrong with it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from .. import __version__
from ..model import Project
from ..store import Store, StoreState
from ..store.filesystem import network_kind
from .fleet import Fleet
from .member import LOST, ONLINE
from .secrets import Secrets

ERROR, WARNING = "error", "warning"
PRIVATE = (
    "admin-token",
    "token-key.pem",
    "local-key.pem",
    "secret-key",
    "session-key",
    "store.db",
    "farhand.db",
)
"""Files of a home that only its owner may read."""

PACKAGES = ("farhand-worker", "fastapi", "starlette", "uvicorn", "websockets", "msgspec", "cryptography")
DISK_LOW_BYTES, DISK_EMPTY_BYTES = 1024**3, 100 * 1024**2
WAL_LARGE_BYTES = 256 * 1024**2
SKEW_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong (``error``) or may become so (``warning``)."""

    level: str
    about: str
    message: str


@dataclass(frozen=True, slots=True)
class SettingShown:
    """A setting in force and where it was found; the value of a secret one is hidden."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class WorkerClock:
    """A worker and how many seconds its clock is ahead of the server's; None when it did not say."""

    name: str
    state: str
    skew_s: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """All that the doctor knows. Sizes are bytes."""

    at: float
    settings: Sequence[SettingShown]
    versions: dict[str, str]
    store: dict[str, Any]
    disk: dict[str, Any]
    capacity: dict[str, Any]
    workers: list[WorkerClock]
    findings: list[Finding] = field(default_factory=list[Finding])


class Doctor:
    """Examines a running server. ``settings`` is filled in by whoever read them."""

    def __init__(self, store: Store, home: Path, fleet: Fleet, secrets: Secrets) -> None:
        self.settings: Sequence[SettingShown] = ()
        self._store = store
        self._home = home
        self._fleet = fleet
        self._secrets = secrets

    async def report(self) -> Report:
        """Look at everything once."""
        state = await self._store.state()
        disk = disk_of(self._home)
        workers = [WorkerClock(m.name, m.state, m.skew_s) for m in self._fleet]
        closed = await self._secrets.load()
        findings = [*of_home(self._home), *of_disk(disk), *of_store(state), *self._of_fleet()]
        findings += of_projects(await self._store.projects.list())
        findings += [Finding(ERROR, "secrets", f"{name!r} was sealed with another key") for name in closed]
        capacity = capacity_of_machine() | self._slots()
        return Report(
            time.time(), self.settings, versions(), asdict(state), disk, capacity, workers, findings
        )

    def _slots(self) -> dict[str, int]:
        online = [member for member in self._fleet if member.state == ONLINE]
        return {
            "workers": len(online),
            "slots": sum(member.parallel for member in online),
            "busy": sum(member.busy for member in online),
        }

    def _of_fleet(self) -> Iterator[Finding]:
        if not self._slots()["slots"]:
            yield Finding(WARNING, "capacity", "no worker with a slot is online; whatever is queued waits")
        for member in self._fleet:
            if member.state == LOST:
                yield Finding(WARNING, "workers", f"{member.name} is not heard of")
            elif member.skew_s is not None and abs(member.skew_s) > SKEW_S_MAX:
                how = "ahead of" if member.skew_s > 0 else "behind"
                message = f"the clock of {member.name} is {abs(member.skew_s):.0f} s {how} this one"
                yield Finding(WARNING, "workers", f"{message}; set both by a time server")


def of_projects(projects: Sequence[Project]) -> Iterator[Finding]:
    """What the projects of a server have that it cannot offer."""
    for project in projects:
        for trouble in project.errors:
            yield Finding(
                WARNING, "projects", f"{trouble.file} of {project.name} is not offered: {trouble.error}"
            )


def versions() -> dict[str, str]:
    """What runs here, by name."""
    found = {"farhand": __version__, "python": platform.python_version(), "system": platform.platform()}
    found["executable"] = sys.executable
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def capacity_of_machine() -> dict[str, Any]:
    """Cores and memory of this machine."""
    memory = psutil.virtual_memory()
    return {"cores": os.cpu_count() or 1, "memory": memory.total, "memory_free": memory.available}


def disk_of(home: Path) -> dict[str, Any]:
    """The disk that a home lies on."""
    usage = shutil.disk_usage(home)
    return {"home": str(home), "total": usage.total, "free": usage.free}


def of_disk(disk: dict[str, Any]) -> Iterator[Finding]:
    """What is wrong with a disk."""
    if disk["free"] < DISK_EMPTY_BYTES:
        yield Finding(
            ERROR, "disk", f"{disk['home']} has less than 100 MB left; nothing can be recorded soon"
        )
    elif disk["free"] < DISK_LOW_BYTES:
        yield Finding(WARNING, "disk", f"{disk['home']} has less than 1 GB left")


def of_store(state: StoreState) -> Iterator[Finding]:
    """What is wrong with a store."""
    for problem in state.problems:
        yield Finding(ERROR, "store", f"{problem}; stop the server and restore a backup")
    mode = state.details.get("journal_mode", "wal")
    if mode != "wal":
        yield Finding(ERROR, "store", f"its journal mode is {mode}, not wal; has another program opened it?")
    if state.details.get("wal_size", 0) > WAL_LARGE_BYTES:
        yield Finding(WARNING, "store", "its write-ahead log is large; something keeps reading from it")


def of_home(home: Path) -> Iterator[Finding]:
    """What is wrong with a home and its files."""
    kind = network_kind(home)
    if kind is not None:
        yield Finding(WARNING, "home", f"{home} lies on a network file system ({kind}); locks may not hold")
    for name in PRIVATE:
        path = home / name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & 0o077:
            message = f"{path} may be read by others (mode {mode:o}); chmod 600 it"
            yield Finding(ERROR, "home", message)
