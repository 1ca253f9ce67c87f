"""Opens the websocket to the server, and tells apart the ways in which that can fail."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import ssl
from typing import Any, Callable, Dict, Optional

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from . import __version__
from .address import Address
from .protocol import FRAME_BYTES_MAX, TUNNEL_HEADER
from .transfer import SESSION_HEADER

_CLOSE_S = 1.0
_TAKES_PROXY = "proxy" in inspect.signature(connect.__init__).parameters
_PROXIES = ("https_proxy", "http_proxy", "all_proxy", "wss_proxy", "ws_proxy", "socks_proxy")

_FINAL = {
    401: "the server does not accept this token: it is wrong, expired or revoked; mint another",
    403: "no worker may attach there; check the path of the URL, and whether a proxy forbids it",
}
_ELSEWHERE = frozenset({301, 302, 303, 307, 308})
_NOT_FARHAND = frozenset({200, 400, 404, 405, 410, 426})

_UNSENT_BYTES = 16 * 1024
"""What may wait in the kernel unsent: on a link of 1 Mbit/s that is an eighth of a second."""


class NotConnected(Exception):
    """The server was not reached; ``refused`` says that surely nothing listens there."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class DialRefused(Exception):
    """What answers will not have this worker, and no retry changes that."""


async def dial(
    address: Address,
    token: str,
    tls: Callable[[], ssl.SSLContext],
    timeout_s: float,
    session: str,
    tunnel: str = "",
) -> ClientConnection:
    """An open websocket. Raises `NotConnected` or `DialRefused`.

    With a ``session`` this server has been attached to before: an odd answer, or a refusal without the
    server's own sentence, is then a proxy in front of a server that is away, not a wrong address. With a
    ``tunnel`` the connection is that tunnel's, and no session.
    """
    options: Dict[str, Any] = {"ssl": None}
    try:
        if address.secure:
            options["ssl"] = await asyncio.wait_for(asyncio.to_thread(tls), timeout_s)
        if address.loopback or not _proxied():
            options["sock"] = await asyncio.wait_for(_connect(address), timeout_s)
            if _TAKES_PROXY:
                options["proxy"] = None
        link = await connect(
            address.attach_url,
            additional_headers=_headers(token, session, tunnel),
            user_agent_header=f"farhand-worker/{__version__}",
            compression=None,
            max_size=FRAME_BYTES_MAX,
            ping_interval=None,
            open_timeout=timeout_s,
            close_timeout=_CLOSE_S,
            **options,
        )
        _keep_short(link)
        return link
    except InvalidStatus as error:
        raise _judge(address, error, known=session != "") from error
    except ConnectionRefusedError as error:
        raise NotConnected("connection refused", refused=True) from error
    except asyncio.TimeoutError as error:  # noqa: UP041 - another class before 3.11
        raise NotConnected(f"no answer within {timeout_s:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise NotConnected(f"its certificate is not trusted: {error.verify_message}") from error
    except (OSError, EOFError, InvalidHandshake, WebSocketException) as error:
        raise NotConnected(str(error) or type(error).__name__) from error


def _keep_short(link: ClientConnection) -> None:
    """Let little wait in the kernel, so that a heartbeat overtakes reports on a slow link."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # not there on every system
    connection = link.transport.get_extra_info("socket")
    if option is not None and connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, _UNSENT_BYTES)


def _headers(token: str, session: str, tunnel: str) -> Dict[str, str]:
    headers = {"Authorization": f"Bearer {token}", SESSION_HEADER: session, TUNNEL_HEADER: tunnel}
    return {name: value for name, value in headers.items() if value}


async def _connect(address: Address) -> socket.socket:
    """A TCP connection; ConnectionRefusedError only when every address of the host refuses."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    failure: Optional[OSError] = None
    for family, kind, number, _, place in found:
        link = socket.socket(family, kind, number)
        link.setblocking(False)
        try:
            await loop.sock_connect(link, place)
        except ConnectionRefusedError as error:
            link.close()
            failure = failure or error
        except OSError as error:
            link.close()
            failure = error
        except asyncio.CancelledError:
            link.close()
            raise
        else:
            return link
    raise failure or OSError(f"{address.host} has no address")


def _judge(address: Address, error: InvalidStatus, known: bool) -> Exception:
    status = error.response.status_code
    sentence = _sentence(error)
    if status in _FINAL and (sentence or not known):
        return DialRefused(sentence or _FINAL[status])
    if status in _ELSEWHERE and not known:
        where = error.response.headers.get("Location", "elsewhere")
        return DialRefused(
            f"{address.text} is not where the server is; it leads to {where}: give that as --url"
        )
    if status in _NOT_FARHAND and not known:
        return DialRefused(f"{address.text} is not a farhand server (it answered {status})")
    return NotConnected(f"the server answered {status}")


def _sentence(error: InvalidStatus) -> Optional[str]:
    try:
        problem = json.loads(error.response.body or b"")
        return str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return None


def _proxied() -> bool:
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)
