"""What an attempt needs of the agent that it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Coroutine, Dict, List, Optional, Protocol

from .cache import Cache
from .channel import Channel
from .checkout import Checkout
from .engines import Pool
from .lines import Lines
from .protocol import Times
from .scratch import Scratch
from .state import StateDirectory
from .surroundings import Surroundings
from .trouble import DiskTrouble


class Host(Protocol):
    """What an attempt needs of its agent."""

    times: Times
    runtime: str
    limits: Dict[str, int]
    state: StateDirectory
    cache: Cache
    pool: Pool
    scratch: Scratch
    disk: DiskTrouble
    lines: Lines
    cwd: Optional[Path]
    checkout: Optional[Checkout]
    surroundings: Optional[Surroundings]
    shared_paths: Optional[List[str]]
    allocated: bool
    background: Callable[[Coroutine[Any, Any, None]], None]

    def send(self, message: Any) -> None:
        """Send a control message, if there is a session."""

    def wake(self) -> None:
        """There is something new to report."""

    def wake_now(self, attempt: Any) -> None:
        """The attempt has something new to report, and somebody waits for it."""

    def flush_later(self, channel: Channel) -> None:
        """It holds what came from the server; more may have come with that."""

    def speaks(self, attempt: Any) -> None:
        """From now on it may have something to report."""

    def wake_soon(self) -> None:
        """There is something new to report, and more to come in a moment."""

    def attempt_over(self, attempt: Any) -> None:
        """The attempt has no engine any more."""
