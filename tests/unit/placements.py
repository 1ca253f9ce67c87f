"""Workers as placement sees them, and the question where a job goes."""

from __future__ import annotations

from typing import Any

from farhand.model import Ask
from farhand.placement import Candidate, Placement, Wanted
from farhand.placement import place as place_wanted
from farhand.resources import NOTHING, Amounts, Capacity

GPU = Ask(labels=("gpu",))


PREFER_GPU = Ask(labels=("gpu",), policy="prefer")


def worker(
    name: str,
    *labels: str,
    room: int = 1,
    parallel: int = 4,
    state: str = "online",
    draining: bool = False,
) -> Candidate:
    in_use = Amounts(slots=parallel - room)
    return Candidate(name, frozenset(labels), Capacity(parallel), in_use, state, draining)


def sized(name: str, *labels: str, used: Amounts = NOTHING, slots: int = 4, **amounts: Any) -> Candidate:
    capacity = Capacity(slots, **{"cpus": 8, "gpus": 2, "ram_mb": 1000, **amounts})
    return Candidate(name, frozenset(labels), capacity, used)


def place(ask: Ask, candidates: list[Candidate]) -> Placement:
    return place_wanted(Wanted(ask), candidates)


SERVER = worker("server")
