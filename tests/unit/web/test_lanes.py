"""The lanes of a worker's page: what ran at the same time lies side by side."""

from __future__ import annotations

from farhand.engine.workers import Past
from farhand.model import Attempt
from farhand.web.pages.lanes import LANE_GAP, LANE_HEIGHT, LANES_MAX, lanes


def past(lease: int, begin: float, end: float | None, outcome: str = "completed") -> Past:
    return Past(Attempt(lease, f"j{lease}", f"r{lease}", 1, "box", begin, begin, end, outcome), "train")


def test_attempts_share_a_lane_unless_they_overlap() -> None:
    drawn = lanes([past(3, 50.0, None, ""), past(1, 0.0, 40.0), past(2, 20.0, 50.0)], 0.0, 100.0)
    assert [(block.run, block.x, block.y, block.width) for block in drawn.blocks] == [
        ("r1", 0.0, 0, 400.0),
        ("r2", 200.0, LANE_HEIGHT + LANE_GAP, 300.0),
        ("r3", 500.0, 0, 500.0),
    ]
    assert [block.outcome for block in drawn.blocks] == ["completed", "completed", "running"]
    assert drawn.height == 2 * (LANE_HEIGHT + LANE_GAP)


def test_what_began_before_is_cut_and_what_was_short_is_still_seen() -> None:
    drawn = lanes([past(1, -50.0, 50.0), past(2, 99.99, 99.99)], 0.0, 100.0)
    assert [(block.x, block.width) for block in drawn.blocks] == [(0.0, 500.0), (998.0, 2.0)]


def test_more_at_once_than_there_are_lanes_is_counted() -> None:
    drawn = lanes([past(n, 0.0, 100.0) for n in range(LANES_MAX + 3)], 0.0, 100.0)
    assert (len(drawn.blocks), drawn.left_out) == (LANES_MAX, 3)
