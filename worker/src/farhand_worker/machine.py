"""A worker's machine in words of both sides: what it lends, and what its engines find in the environment.

Apart from the protocol's messages, of which a worker needs none before it dials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

ENGINE_ID_VARIABLE = "FARHAND_ENGINE"
"""The one variable of farhand's own in an engine's environment; its descendants inherit it."""

CUDA_MASK = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees."""


@dataclass(frozen=True)
class Inventory:
    """What a worker's machine has to lend; None is unknown, which refuses nothing.

    ``devices`` are the names of its GPUs for the masks of engines, ``gpus`` of them: opaque strings (an
    index, the uuid of a GPU or of a part of one) from the mask the agent itself was given.
    """

    cpus: Optional[int] = None
    gpus: Optional[int] = None
    ram_mb: Optional[int] = None
    devices: Optional[List[str]] = None
