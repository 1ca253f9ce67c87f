"""Connections by the way that the environment asks for: straight, or through a proxy."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import ssl
from typing import Optional

from .address import Address
from .proxies import Proxy, proxy_for

_ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3})")
_ANSWER_BYTES_MAX = 16 * 1024


class NoWay(OSError):
    """The proxy does not lead there; the message says what it answered. Nothing is known of the server."""


def connection_to(
    address: Address, timeout_s: float, context: Optional[ssl.SSLContext] = None
) -> http.client.HTTPConnection:
    """A connection that is not open yet; encrypted when a ``context`` is given. Raises `BadProxy`."""
    proxy = proxy_for(address)
    host, port = (address.host, address.port) if proxy is None else (proxy.host, proxy.port)
    if context is None:
        made = http.client.HTTPConnection(host, port, timeout=timeout_s)
    else:
        made = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    if proxy is not None:
        made.set_tunnel(address.host, address.port, proxy.headers())
    return made


async def pass_through(link: socket.socket, proxy: Proxy, address: Address) -> None:
    """Have the proxy at the other end of ``link`` lead on to ``address``. Raises `NoWay` and OSError."""
    loop = asyncio.get_running_loop()
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [f"CONNECT {host}:{address.port} HTTP/1.1", f"Host: {host}:{address.port}"]
    lines += [f"{name}: {value}" for name, value in proxy.headers().items()]
    await loop.sock_sendall(link, "\r\n".join([*lines, "", ""]).encode("latin-1"))
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await loop.sock_recv(link, 4096)
        head += piece
        if not piece or len(head) > _ANSWER_BYTES_MAX:
            break
    _judge(head, proxy, f"{host}:{address.port}")


def _judge(head: bytes, proxy: Proxy, where: str) -> None:
    answer = _ANSWER.match(head)
    if answer is None or b"\r\n\r\n" not in head:
        raise NoWay(f"the proxy {proxy.text} gave no answer to a connection to {where}")
    status = int(answer.group(1))
    if status == 407:
        raise NoWay(f"the proxy {proxy.text} wants other credentials: http://NAME:PASSWORD@{proxy.text}")
    if not 200 <= status < 300:
        raise NoWay(f"the proxy {proxy.text} answered {status} to a connection to {where}")
