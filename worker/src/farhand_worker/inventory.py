"""What a machine has to lend: cores, GPUs, memory, by what surrounds the program. No vendor tool is asked.

For each amount the first of these that says something decides: what was said on the command line, Slurm,
what the environment or the file of settings says, the cgroup, the machine. What nothing tells stays unknown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from .cgroup import cpu_quota, memory_limit
from .machine import CUDA_MASK, Inventory
from .usage import Usage

_OTHER_GPUS = ("kfd", "dxg", "nvhost-gpu")
"""Device files of GPUs that are not counted by files: with one of them the number is unknown."""

_MIB = 1024 * 1024


class BadInventory(Usage):
    """An amount cannot be believed; the message says which, and what would help."""


class Said(NamedTuple):
    """What a person said of the machine: None where nothing was said."""

    cpus: Optional[int] = None
    gpus: Optional[int] = None
    ram_mb: Optional[int] = None


NOTHING = Said()


class Found(NamedTuple):
    """The inventory, and where each amount was found."""

    inventory: Inventory
    sources: Dict[str, str]


@dataclass(frozen=True)
class Surroundings:
    """What detection looks at. ``read`` gives a file's text or None; ``devices`` are the names in /dev."""

    environ: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[str], Optional[str]] = lambda path: None
    devices: Tuple[str, ...] = ()
    cores: Optional[int] = None
    linux: bool = True


_Candidate = Tuple[str, Optional[int]]


def detect(around: Surroundings, flags: Said = NOTHING, settings: Said = NOTHING) -> Found:
    """The inventory of a machine. ``settings`` are those of the environment and the file of settings.

    Raises `BadInventory` for a variable that is no number, and for more GPUs than the mask names.
    """
    cpus, cpus_from = _first(_cpus(around, flags, settings))
    ram_mb, ram_from = _first(_ram(around, flags, settings, cpus))
    gpus, gpus_from = _first(_gpus(around, flags, settings))
    inventory = Inventory(cpus, gpus, ram_mb, _devices(around.environ, gpus, gpus_from))
    return Found(inventory, {"cpus": cpus_from, "gpus": gpus_from, "ram_mb": ram_from})


def here() -> Surroundings:
    """This machine."""
    devices = tuple(sorted(os.listdir("/dev"))) if os.path.isdir("/dev") else ()
    return Surroundings(dict(os.environ), _text, devices, cores_here(), os.path.isdir("/proc/self"))


def _first(candidates: Iterator[_Candidate]) -> Tuple[Optional[int], str]:
    return next(((value, source) for source, value in candidates if value is not None), (None, "unknown"))


def _cpus(around: Surroundings, flags: Said, settings: Said) -> Iterator[_Candidate]:
    yield "--cpus", flags.cpus
    yield from _variable(around, "SLURM_CPUS_ON_NODE")
    yield "settings", settings.cpus
    quota = cpu_quota(around.read)
    if quota is not None and (around.cores is None or quota < around.cores):
        yield "cgroup", max(1, int(quota))
    yield "machine", around.cores


def _ram(around: Surroundings, flags: Said, settings: Said, cpus: Optional[int]) -> Iterator[_Candidate]:
    yield "--ram-mb", flags.ram_mb
    for name, whole in _variable(around, "SLURM_MEM_PER_NODE"):
        yield name, whole or None  # 0 asks Slurm for all there is
    for name, each in _variable(around, "SLURM_MEM_PER_CPU"):
        cores = dict(_variable(around, "SLURM_CPUS_ON_NODE")).get("SLURM_CPUS_ON_NODE", cpus)
        yield name, each * cores if each and cores else None
    yield "settings", settings.ram_mb
    total = _memory_total(around.read("/proc/meminfo"))
    limit = memory_limit(around.read)
    if limit is not None and (total is None or limit < total):
        yield "cgroup", limit // _MIB
    yield "machine", None if total is None else total // _MIB


def _gpus(around: Surroundings, flags: Said, settings: Said) -> Iterator[_Candidate]:
    environ = around.environ
    yield "--gpus", flags.gpus
    yield from _variable(around, "SLURM_GPUS_ON_NODE")
    yield "settings", settings.gpus
    if "SLURM_JOB_GPUS" in environ:
        yield "SLURM_JOB_GPUS", len(_listed(environ["SLURM_JOB_GPUS"]))
    if CUDA_MASK in environ:
        yield CUDA_MASK, len(mask(environ[CUDA_MASK]))
    nodes = sum(name.startswith("nvidia") and name[6:].isdigit() for name in around.devices)
    if nodes or (around.linux and not any(name in around.devices for name in _OTHER_GPUS)):
        yield "machine", nodes


def mask(text: str) -> List[str]:
    """The devices that a CUDA mask shows: as CUDA reads it, up to the first that is none.

    One that is named twice is one device, which two jobs would otherwise be given.
    """
    shown: List[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not name or name.startswith("-") or name == "NoDevFiles":
            break
        if name not in shown:
            shown.append(name)
    return shown


def _devices(environ: Mapping[str, str], gpus: Optional[int], source: str) -> Optional[List[str]]:
    """The names of the GPUs to lend, as many as there are, for the masks of engines."""
    if gpus is None:
        return None
    if CUDA_MASK in environ:
        names, where = mask(environ[CUDA_MASK]), CUDA_MASK
    elif environ.get("SLURM_JOB_GPUS"):
        names, where = _listed(environ["SLURM_JOB_GPUS"]), "SLURM_JOB_GPUS"
    else:
        return [str(index) for index in range(gpus)]
    if len(names) < gpus:
        raise BadInventory(
            f"{gpus} GPUs by {source}, but {where} names {len(names)}; give --gpus with at most as many"
        )
    return names[:gpus]


def _variable(around: Surroundings, name: str) -> Iterator[Tuple[str, int]]:
    text = around.environ.get(name, "").strip()
    if not text:
        return
    if not text.isdigit():
        option = {"C": "--cpus", "M": "--ram-mb", "G": "--gpus"}[name[len("SLURM_")]]
        raise BadInventory(f"{name} is {text!r}, which is no whole number; unset it, or give {option}")
    yield name, int(text)


def _listed(text: str) -> List[str]:
    """``0,1`` and ``0-3,5`` alike; names that are no numbers stay as they are."""
    names: List[str] = []
    for part in (part.strip() for part in text.split(",")):
        low, dash, high = part.partition("-")
        if dash and low.isdigit() and high.isdigit():
            names += [str(index) for index in range(int(low), int(high) + 1)]
        elif part:
            names.append(part)
    return list(dict.fromkeys(names))


def _memory_total(meminfo: Optional[str]) -> Optional[int]:
    for line in (meminfo or "").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemTotal":
            return int(amount.split()[0]) * 1024
    return None


def cores_here() -> Optional[int]:
    """The cores this process may use, which is also what a cpuset leaves of them."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count()


def _text(path: str) -> Optional[str]:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None
