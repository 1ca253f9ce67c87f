"""How a visitor of the console comes to a service at its own host: by a code, which buys a cookie there.

The code works once, within a minute. The cookie holds a ticket, good for that service alone and no longer
than the sign-in that bought it, which signing out ends. No script can read it, the service never sees it, and
pages of other sites do not have it sent, unless they merely lead there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from .settings import WebSettings

OPEN_PATH = "/.farhand/open"
"""The one path at the host of a service that does not lead to it."""

CODE_S = 60.0


class Opening(NamedTuple):
    """What a code is for: a ticket of a service, and where in it the visitor goes."""

    service: str
    ticket: str
    to: str


class Openings:
    """The codes that have not been used."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._open: dict[str, tuple[Opening, float]] = {}

    def sell(self, opening: Opening) -> str:
        """A code for it."""
        self._forget_old()
        code = secrets.token_urlsafe(24)
        self._open[code] = (opening, self._now() + CODE_S)
        return code

    def redeem(self, code: str, service: str) -> Opening | None:
        """What a code is for; None for one that is used, old, made up, or another service's."""
        self._forget_old()
        opening, _ = self._open.pop(code, (None, 0.0))
        return opening if opening is not None and opening.service == service else None

    def _forget_old(self) -> None:
        now = self._now()
        self._open = {code: sold for code, sold in self._open.items() if sold[1] > now}


def cookie_name(settings: WebSettings) -> str:
    """The cookie at the host of a service; one name a port, since servers may share a host."""
    return f"farhand-service-{settings.port}"
