"""How long to wait before a retry. Pure, and the same on the server, in engines and in scripts.

Python 3.9 and no dataclass: it is part of the runtime, and scripts load it.
"""

from __future__ import annotations

from collections.abc import Sequence

_DOUBLINGS_MAX = 64


def retry_delay_s(
    seconds: Sequence[float],
    number: int,
    factor: float = 1.0,
    cap_s: float | None = None,
    jitter: float = 0.0,
    draw: float = 0.5,
) -> float:
    """The delay before retry ``number`` (from 1).

    ``seconds`` are the first delays; the last of them is multiplied by ``factor`` for every retry beyond,
    up to ``cap_s``. ``jitter`` is the share by which the delay may differ either way, and ``draw`` (0 to 1,
    drawn by the caller) says by how much it does: 0.5 is not at all.
    """
    if not seconds:
        return 0.0
    beyond = min(max(0, number - len(seconds)), _DOUBLINGS_MAX)
    delay_s = seconds[min(number, len(seconds)) - 1] * factor**beyond
    if cap_s is not None:
        delay_s = min(delay_s, cap_s)
    return max(0.0, delay_s * (1 + jitter * (2 * draw - 1)))
