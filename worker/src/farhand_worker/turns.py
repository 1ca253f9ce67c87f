"""Whose turn it is to report: each held job after the others, but for those that wait behind another."""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, Dict, Optional, Set, Tuple

from .confirming import Confirmations
from .protocol import encode_events
from .reports import HOLD_S, Reports
from .uploads import Uploads
from .waking import Waking

JobKey = Tuple[str, int]


class Turns:
    """Of what is in ``outbox``. ``lost`` is told of reports that name a value which is lost."""

    def __init__(
        self,
        outbox: Dict[JobKey, Reports],
        uploads: Uploads,
        confirmations: Confirmations,
        waking: Waking,
        lost: Callable[[JobKey, Reports], None],
    ) -> None:
        self._outbox = outbox
        self._uploads = uploads
        self._confirmations = confirmations
        self._waking = waking
        self._lost = lost
        self._order: Deque[JobKey] = deque()
        self._mute: Set[JobKey] = set()

    def wait(self, key: JobKey) -> None:
        """It has nothing to say before `join`."""
        self._mute.add(key)

    def join(self, key: JobKey) -> None:
        """It may have something to say from now on."""
        self._mute.discard(key)
        if key in self._outbox and key not in self._order:
            self._order.append(key)

    def leave(self, key: JobKey) -> None:
        """Nothing more is reported of it."""
        self._mute.discard(key)
        if key in self._order:
            self._order.remove(key)

    def begin_again(self) -> None:
        """A new session: all that may have something to say, in the order in which they came."""
        self._order = deque(key for key in self._outbox if key not in self._mute)

    def next(self) -> Optional[str]:
        """The next frame of reports, if there is one."""
        for _ in range(len(self._order)):
            key = self._order.popleft()
            reports = self._outbox[key]
            text = self._text(key, reports)
            if text is not None or not reports.told:
                self._order.append(key)
            if text is not None:
                return text
        return None

    def next_of(self, key: JobKey) -> Optional[str]:
        """The same of one job, whoever's turn it is: somebody waits for what it has to say."""
        reports = self._outbox.get(key)
        if reports is None or not reports.unsent or key in self._mute:
            return None
        return self._text(key, reports)

    def _text(self, key: JobKey, reports: Reports) -> Optional[str]:
        batch = reports.next()
        if batch is None and reports.stuck:
            self._lost(key, reports)
        if reports.wanted:
            self._uploads.want(reports)
        if reports.holds:
            self._waking.within(HOLD_S)
        if batch is None:
            return None
        self._confirmations.said(key)
        return encode_events(key[0], key[1], batch.source, batch.first, batch.lines)
