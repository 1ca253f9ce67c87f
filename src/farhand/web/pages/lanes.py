"""What a worker did in the last hours, as lanes of an SVG: attempts side by side. Pure geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...engine.workers import Past

WIDTH = 1000
LANE_HEIGHT, LANE_GAP = 14, 4
LANES_MAX = 12
MARKS = 6


@dataclass(frozen=True, slots=True)
class Block:
    """One attempt: where it lies, what it was, and how it ended (``running`` while it has not)."""

    x: float
    y: float
    width: float
    run: str
    outcome: str
    said: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """The drawing. ``marks`` are moments with their places; ``left_out`` counts what had no lane."""

    blocks: list[Block]
    marks: list[tuple[float, float]]
    height: int
    left_out: int


def lanes(past: Sequence[Past], begin: float, end: float) -> Lanes:
    """Attempts between two moments, each in the first lane that is free by then."""
    free_at: list[float] = []
    blocks: list[Block] = []
    left_out = 0
    for item in sorted(past, key=lambda item: item.attempt.leased_at):
        since, until = max(begin, item.attempt.leased_at), min(end, item.attempt.ended_at or end)
        lane = next((i for i, at in enumerate(free_at) if at <= since), len(free_at))
        if lane >= LANES_MAX:
            left_out += 1
            continue
        free_at[lane : lane + 1] = [until]
        blocks.append(_block(item, lane, since, until, begin, end))
    marks = [((end - begin) * n / MARKS + begin, WIDTH * n / MARKS) for n in range(1, MARKS)]
    return Lanes(blocks, marks, max(1, len(free_at)) * (LANE_HEIGHT + LANE_GAP), left_out)


def _block(item: Past, lane: int, since: float, until: float, begin: float, end: float) -> Block:
    scale = WIDTH / (end - begin)
    width = max(2.0, (until - since) * scale)
    x = min((since - begin) * scale, WIDTH - width)
    outcome = item.attempt.outcome or "running"
    said = f"{item.name}, attempt {item.attempt.number}: {outcome}"
    return Block(
        round(x, 1), lane * (LANE_HEIGHT + LANE_GAP), round(width, 1), item.attempt.run, outcome, said
    )
