"""The worker's side of its sessions: dials, says hello, listens, and dials again, for ever."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from dataclasses import asdict
from typing import Any, Callable, List, Optional, Tuple

from websockets.exceptions import ConnectionClosed

from . import __version__
from .address import Address, BadAddress
from .clock import boot_id, lease_now, wall_now
from .dial import DialRefused, NotConnected, dial
from .holdings import Holdings
from .link import Link
from .options import Options
from .orders import Orders
from .protocol import (
    AHEAD_MAX,
    SUPPORTED,
    Ack,
    Bye,
    Hello,
    ProtocolViolation,
    Refused,
    Times,
    Welcome,
    decode,
    encode,
)
from .renewal import Renewal
from .session import Session, SessionOver
from .state import StateDirectory
from .surroundings import Surroundings
from .transfer import Transfer
from .tunnels import Tunnels

_RETRY_S, _RETRY_S_MAX = 0.5, 5.0
_RETRY_SHARE, _RETRY_SHARE_MAX = 1 / 30, 1 / 3
"""The same as shares of a short lease, which is to be renewed within it."""
_OPEN_S = 10.0
_log = logging.getLogger("farhand.worker")


class Attendance:
    """One session after another. ``draining`` says whether a hello asks for nothing new.

    For whoever shows it: ``server``, ``name`` and ``labels`` as the last welcome had them; ``since``,
    when the session or the time without one began; ``answered_at`` and, on the lease clock, ``heard_at``,
    when the server last answered; ``trouble``, why there is no session. The server is told ``status_url``.
    """

    def __init__(
        self,
        options: Options,
        state: StateDirectory,
        holdings: Holdings,
        transfer: Transfer,
        renewal: Renewal,
        orders: Orders,
        welcomed: Callable[[Welcome], None],
        surroundings: Surroundings,
    ) -> None:
        self._surroundings = surroundings
        self._options = options
        self._state = state
        self._holdings = holdings
        self._transfer = transfer
        self._renewal = renewal
        self._orders = orders
        self._welcomed = welcomed
        self.tunnels = Tunnels(holdings.where, self._dial_tunnel, holdings.send)
        self._session: Optional[Session] = None
        self._session_key: Optional[str] = None
        self._incarnation: Optional[str] = None
        self._failures = 0
        self._at_once = False
        self.swept: Optional[str] = None
        self.draining = False
        self.server = ""
        self.name = options.name
        self.labels: List[str] = []
        self.status_url: Optional[str] = None
        self.since = wall_now()
        self.heard_at = lease_now()
        self.answered_at: Optional[float] = None
        self.trouble = "it has not been reached yet"

    @property
    def attached(self) -> bool:
        """Whether a session stands."""
        return self._session is not None

    async def keep(self, over: Callable[[], bool]) -> None:
        """Attend until ``over`` says so. Raises `DialRefused` when no retry would change anything."""
        while not over():
            since = self.since
            why = await self._attend()
            was = self.since != since
            if over():
                return
            self.trouble = why
            if self._at_once:
                self._at_once = False
                continue
            delay_s = self._delay_s()
            _log.warning(
                "%s: %s; retrying in %.1f s", "disconnected" if was else "not connected", why, delay_s
            )
            await asyncio.sleep(delay_s)

    def say_hello_again(self, why: str) -> None:
        """Attach anew: a hello is what says that nothing new is taken."""
        if self._session is not None:
            self._at_once = True
            self._session.finish(why)

    def beat(self) -> None:
        """Say that this worker is there, now."""
        if self._session is not None:
            self._session.beat()

    def part(self, why: str) -> bool:
        """Say goodbye, if there is a session; its end is the end of it."""
        if self._session is None:
            return False
        self._session.finish(why, Bye(why))
        return True

    def _delay_s(self) -> float:
        lease_s = self._holdings.times.lease_s
        first_s, limit_s = (
            min(_RETRY_S, lease_s * _RETRY_SHARE),
            min(_RETRY_S_MAX, lease_s * _RETRY_SHARE_MAX),
        )
        self._failures += 1
        return random.uniform(0, min(limit_s, first_s * 2 ** min(self._failures - 1, 8)))

    async def _attend(self) -> str:
        """One session, from the dial to its end; says why it ended. Raises `DialRefused`."""
        timeout_s = min(_OPEN_S, self._holdings.times.lease_s * 2 / 3)
        link: Optional[Link] = None
        try:
            address, link = await self._dial(timeout_s)
            sent_at = lease_now()
            hello = self._hello()
            await link.send(encode(hello))
            welcome = _opening(decode(str(await asyncio.wait_for(link.recv(), timeout_s))))
            link.received()
            self._welcome(welcome, sent_at, address)
            self._session = self._holdings.session = Session(
                link,
                self._holdings.times.heartbeat_s,
                self._holdings.turns.next,
                self._receive,
                self._holdings.behind,
                welcome.several,
                self._holdings.flush,
            )
            self._holdings.resume(welcome.resume)
            if self.draining and not hello.draining:
                self.say_hello_again("this worker takes nothing new since its hello")
            await self._session.run()
            return "the session ended"
        except asyncio.TimeoutError:  # noqa: UP041 - another class before 3.11
            return "the server did not answer the hello"
        except ConnectionClosed as error:
            return f"the connection broke: {error}"
        except (SessionOver, NotConnected, ProtocolViolation, BadAddress) as error:
            return str(error)
        except OSError as error:  # of this machine, such as a spool that cannot be read: its jobs go on
            return f"something is wrong here: {error}"
        finally:
            if self._session is not None:
                self.since = wall_now()
            self._session = self._holdings.session = None
            if link is not None:
                link.transport.abort()

    async def _dial(self, timeout_s: float) -> Tuple[Address, Link]:
        address = self._options.address()
        self._transfer.address = address
        self.server = address.text
        began_at = lease_now()
        transfer = self._transfer
        try:
            return address, await dial(
                address, self._options.token, transfer.tls, timeout_s, transfer.session
            )
        except NotConnected as error:
            transfer.renew_trust()
            self._renewal.check()
            if error.refused and not self._options.relayed:
                self._renewal.refused(began_at)
            raise

    async def _dial_tunnel(self, tunnel: str) -> Link:
        transfer = self._transfer
        timeout_s = min(_OPEN_S, self._holdings.times.lease_s * 2 / 3)
        try:
            address = self._options.address()
        except BadAddress as error:
            raise NotConnected(str(error)) from error
        return await dial(address, self._options.token, transfer.tls, timeout_s, transfer.session, tunnel)

    def _hello(self) -> Hello:
        return Hello(
            protocol=list(SUPPORTED),
            version=__version__,
            name=self._options.name,
            instance=self._state.instance,
            boot_id=boot_id(),
            host=socket.gethostname(),
            python=self._options.python_version,
            parallel=self._orders.parallel,
            labels=self._options.labels,
            held=self._holdings.hello_lines(self._renewal.rides_outage),
            swept=self.swept,
            session_key=self._session_key,
            incarnation=self._incarnation,
            draining=self.draining,
            inventory=asdict(self._options.inventory),
            status_url=self.status_url,
            service_host=self._options.service_host,
            shared_paths=list(self._options.shared_paths),
            checkout=None if self._options.checkout is None else str(self._options.checkout),
            git=self._surroundings.git,
            environment=self._surroundings.environment,
            ends_at=None if self._options.allocation is None else self._options.allocation.ends_at,
            hosts=True,
            tunnels=True,
            several=True,
            ahead=AHEAD_MAX,
        )

    def _welcome(self, message: Welcome, sent_at: float, address: Address) -> None:
        times = Times(**{name: value for name, value in message.times.items() if hasattr(Times, name)})
        self._renewal.welcomed(times, sent_at)
        self._failures = 0
        self._session_key = message.session_key
        self._transfer.session = f"{self._state.instance} {message.session_key}"
        self._incarnation = message.incarnation
        self.name, self.labels = message.name, list(message.labels)
        self.since = self.answered_at = wall_now()
        self.heard_at = lease_now()
        self._welcomed(message)
        labels = ", ".join(message.labels) or "none"
        _log.info("attached to %s as %s with labels %s", address.text, message.name, labels)

    def _receive(self, message: Any) -> None:
        if self._renewal.check():
            raise SessionOver("the lease ran out while this process stood still")
        if isinstance(message, Ack) and message.n is not None:
            sent_at = self._session.answered(message.n) if self._session is not None else None
            if sent_at is not None:
                self.answered_at, self.heard_at = wall_now(), lease_now()
                self._renewal.acknowledged(sent_at)
            return
        kind = type(message)
        handler = self._holdings.handlers.get(kind) or self._orders.handlers.get(kind)
        handler = handler or self.tunnels.handlers.get(kind)
        if handler is None:
            raise ProtocolViolation(f"{message.type} is not for an agent, or not now")
        handler(message)


def _opening(message: Any) -> Welcome:
    """The welcome in the server's first message. Raises for everything else it may be."""
    if isinstance(message, Welcome):
        return message
    if isinstance(message, Refused):
        raise (DialRefused if message.final else NotConnected)(f"{message.message} ({message.code})")
    raise ProtocolViolation(f"{message.type} instead of a welcome")
