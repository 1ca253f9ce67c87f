"""Looks at a running agent for its status page."""

from __future__ import annotations

import logging
import platform
import socket

from . import __version__
from .attendance import Attendance
from .clock import lease_now, wall_now
from .holdings import Holdings
from .options import Options
from .orders import Orders
from .protocol import VERSION
from .status import Host, Running, Status
from .surroundings import Surroundings
from .tally import RecentMessages


class Observer:
    """Puts together what the parts of an agent know. Keeps the last messages from now on."""

    def __init__(
        self,
        options: Options,
        attendance: Attendance,
        holdings: Holdings,
        orders: Orders,
        surroundings: Surroundings,
    ) -> None:
        self._surroundings = surroundings
        self._orders = orders
        self._attendance = attendance
        self._holdings = holdings
        self._started_at = wall_now()
        self._recent = RecentMessages()
        self._log = logging.getLogger("farhand.worker")
        self._log.addHandler(self._recent)
        self._host = Host(
            name=socket.gethostname(),
            system=f"{platform.system()} {platform.release()} on {platform.machine()}",
            python=platform.python_version(),
            user_python=f"{options.python_version} ({options.python})",
            inventory=options.inventory,
            found_by=dict(options.found_by),
        )

    def close(self) -> None:
        """Keep no more messages."""
        self._log.removeHandler(self._recent)

    def look(self) -> Status:
        """The state now."""
        attendance, holdings = self._attendance, self._holdings
        holdings.afterwards.catch_up()
        return Status(
            at=wall_now(),
            name=attendance.name,
            labels=attendance.labels,
            version=f"{__version__}, protocol {VERSION}",
            server=attendance.server,
            attached=attendance.attached,
            since=attendance.since,
            answered_at=attendance.answered_at,
            silent_s=lease_now() - attendance.heard_at,
            heartbeat_s=holdings.times.heartbeat_s,
            trouble="" if attendance.attached else attendance.trouble,
            disk=holdings.disk.reason,
            draining=attendance.draining or self._orders.draining,
            code=self._surroundings.code,
            started_at=self._started_at,
            parallel=self._orders.parallel,
            running=self._running(),
            total=holdings.tallies.total,
            flows=holdings.tallies.flows(),
            messages=list(self._recent.messages),
            host=self._host,
        )

    def _running(self) -> list[Running]:
        return [
            Running(a.assign.job, a.assign.run, a.assign.flow, a.assign.kind, a.reports.started_at)
            for a in self._holdings.begun
        ]
