"""Placed calls whose workers are not heard of: where they were, and when they are taken up again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from .fleet import Fleet
from .member import AWAITED, LOST, Holding, Member

Adrift = Mapping[str, Sequence[tuple[Member, Holding]]]
"""By run, the calls it placed that are adrift."""


def adrift(fleet: Fleet) -> Adrift:
    """What is adrift now."""
    found: dict[str, list[tuple[Member, Holding]]] = {}
    for member in fleet:
        if is_away(member):
            for holding in member.holdings.values():
                if holding.job.kind == "call":
                    found.setdefault(holding.job.run, []).append((member, holding))
    return found


def is_away(member: Member) -> bool:
    """Whether a worker is not heard of, and its leases have not run out."""
    return member.link is None and member.state in (LOST, AWAITED)


def sentence(fleet: Fleet, member: Member, holding: Holding) -> str:
    """What becomes of a call whose worker is not heard of."""
    left_s = max(0.0, fleet.expires_at(member, holding) - time.monotonic())
    return f"is on {member.name}, which is not heard of; queued again in {left_s:.0f} s unless it comes back"
