"""Opens the websocket to the server, and tells apart the ways in which that can fail."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import ssl
from typing import Any, Callable, Dict, Optional, cast

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus, WebSocketException

from . import __version__
from .address import Address
from .link import Link
from .protocol import FRAME_BYTES_MAX, TUNNEL_HEADER
from .proxies import proxy_for
from .transfer import SESSION_HEADER
from .ways import NoWay, pass_through

_CLOSE_S = 1.0
_TAKES_PROXY = "proxy" in inspect.signature(connect.__init__).parameters

_FINAL = {
    401: "the server does not accept this token: it is wrong, expired or revoked; mint another",
    403: "no worker may attach there; check the path of the URL, and whether a proxy forbids it",
}
_ELSEWHERE = frozenset({301, 302, 303, 307, 308})
_NOT_FARHAND = frozenset({200, 400, 404, 405, 410, 426})

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"})
"""What versions of OpenSSL say of an answer in plain text."""

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
) -> Link:
    """An open websocket. Raises `NotConnected` or `DialRefused`.

    With a ``session`` this server has been attached to before: an odd answer, or a refusal without the
    server's own sentence, is then a proxy in front of a server that is away, not a wrong address. With a
    ``tunnel`` the connection is that tunnel's, and no session.
    """
    options: Dict[str, Any] = {"ssl": None}
    try:
        if address.secure:
            options["ssl"] = await asyncio.wait_for(asyncio.to_thread(tls), timeout_s)
        options["sock"] = await asyncio.wait_for(_way(address), timeout_s)
        if _TAKES_PROXY:
            options["proxy"] = None  # passed already, where there is one
        link = await connect(
            address.attach_url,
            additional_headers=_headers(token, session, tunnel),
            user_agent_header=f"farhand-worker/{__version__}",
            compression=None,
            max_size=FRAME_BYTES_MAX,
            ping_interval=None,
            open_timeout=timeout_s,
            close_timeout=_CLOSE_S,
            create_connection=Link,
            **options,
        )
        _keep_short(link)
        return cast(Link, link)
    except InvalidStatus as error:
        raise _judge(address, error, known=session != "") from error
    except ConnectionRefusedError as error:
        raise NotConnected("connection refused", refused=True) from error
    except asyncio.TimeoutError as error:  # noqa: UP041 - another class before 3.11
        raise NotConnected(f"no answer within {timeout_s:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise NotConnected(f"its certificate is not trusted: {error.verify_message}") from error
    except (InvalidMessage, ValueError) as error:  # websockets before 14 raises what it met while reading
        raise _unread(address, error, known=session != "") from error
    except (OSError, EOFError, InvalidHandshake, WebSocketException) as error:
        raise NotConnected(_why(error)) from error


def _keep_short(link: Any) -> None:
    """Let little wait in the kernel, so that a heartbeat overtakes reports on a slow link."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # not there on every system
    connection = link.transport.get_extra_info("socket")
    if option is not None and connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, _UNSENT_BYTES)


def _headers(token: str, session: str, tunnel: str) -> Dict[str, str]:
    headers = {"Authorization": f"Bearer {token}", SESSION_HEADER: session, TUNNEL_HEADER: tunnel}
    return {name: value for name, value in headers.items() if value}


async def _way(address: Address) -> socket.socket:
    """A connection that leads to the server. A proxy that refuses says nothing of the server behind it."""
    proxy = proxy_for(address)
    if proxy is None:
        return await _connect(address.host, address.port)
    try:
        link = await _connect(proxy.host, proxy.port)
    except OSError as error:
        raise NoWay(f"the proxy {proxy.text} cannot be reached: {_why(error)}") from error
    try:
        await pass_through(link, proxy, address)
    except BaseException:  # a cancelled dial as well leaves no socket open
        link.close()
        raise
    return link


async def _connect(host: str, port: int) -> socket.socket:
    """A TCP connection; ConnectionRefusedError only when every address of the host refuses."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(f"no address of {host} is found: {error.strerror}") from error
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
    raise failure or OSError(f"{host} has no address")


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


def _unread(address: Address, error: Exception, known: bool) -> Exception:
    """What answers speaks no HTTP, or an older one than every server of this kind; or nothing answered."""
    if isinstance(error.__cause__, EOFError):
        return NotConnected("the connection was closed before an answer came")
    if known:
        return NotConnected(_why(error))
    return DialRefused(f"{address.text} is not a farhand server (its answer is not HTTP/1.1)")


def _why(error: BaseException) -> str:
    """The system's own words, where the event loop has put others in their place."""
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "what answers there does not speak TLS; a server that does not has an http:// address"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return str(error) or type(error).__name__


def _sentence(error: InvalidStatus) -> Optional[str]:
    try:
        problem = json.loads(error.response.body or b"")
        return str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return None
