"""Serves the status page: a few paths over HTTP/1.1, read-only, each answer fresh, every Host checked.

There is no login, so it listens on this machine alone unless told otherwise, and answers only requests that
name this machine: a page elsewhere cannot have a browser read it under a name of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from .status import Status, as_json, healthy, sentence
from .status_page import STYLE, page

_REQUEST_BYTES_MAX = 16 * 1024
_PATIENCE_S = 5.0
_CONNECTIONS_MAX = 32
_HEADERS = (
    "Cache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Connection: close\r\n"
)
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
_REASONS[503] = "Service Unavailable"


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    media_type: str
    body: str


class StatusServer:
    """Listens at one address; ``look`` gives the state at the moment of a request."""

    def __init__(self, host: str, port: int, look: Callable[[], Status]) -> None:
        self._host = host
        self._port = port
        self._look = look
        self._server: Optional[asyncio.AbstractServer] = None
        self._open = 0

    async def start(self) -> str:
        """Listen; the page's address. Raises OSError when that address cannot be had."""
        self._server = await asyncio.start_server(
            self._serve, self._host, self._port, limit=_REQUEST_BYTES_MAX, start_serving=True
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return f"http://{_bracketed(_reached_by(self._host))}:{self._port}/"

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _CONNECTIONS_MAX:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE_S)
                writer.write(respond(head, self._host, self._look))
                await asyncio.wait_for(writer.drain(), _PATIENCE_S)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError):  # noqa: UP041
            pass  # whoever asked has gone, or asks for ever
        finally:
            self._open -= 1
            writer.close()


def respond(head: bytes, listening: str, look: Callable[[], Status]) -> bytes:
    """The response to a request, as bytes."""
    try:
        method, path, headers = _parsed(head)
    except ValueError:
        return _encoded(Answer(400, "text/plain", "this is no request\n"), True)
    if not named(headers.get("host", ""), listening):
        answer = Answer(403, "text/plain", "this page is asked for under the name of its machine\n")
    elif method not in ("GET", "HEAD"):
        answer = Answer(405, "text/plain", "this page is only for reading\n")
    else:
        answer = answered(path.partition("?")[0], look)
    return _encoded(answer, method != "HEAD")


def answered(path: str, look: Callable[[], Status]) -> Answer:
    """What is at a path."""
    made = _PATHS.get(path)
    return Answer(404, "text/plain", "there is nothing here\n") if made is None else made(look)


def named(host: str, listening: str) -> bool:
    """Whether a Host header names this machine: an address, ``localhost`` or, beyond loopback, its name."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    if name == "localhost":
        return True
    here = _loopback(listening)
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        own = {listening.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
        return not here and name in own
    return address.is_loopback or not here


def _page(look: Callable[[], Status]) -> Answer:
    return Answer(200, "text/html", page(look()))


def _json(look: Callable[[], Status]) -> Answer:
    return Answer(200, "application/json", json.dumps(as_json(look()), indent=2) + "\n")


def _health(look: Callable[[], Status]) -> Answer:
    status = look()
    return Answer(200 if healthy(status) else 503, "text/plain", sentence(status) + "\n")


_PATHS: Dict[str, Callable[[Callable[[], Status]], Answer]] = {
    "/": _page,
    "/status.json": _json,
    "/healthz": _health,
    "/style.css": lambda look: Answer(200, "text/css", STYLE),
}


def _parsed(head: bytes) -> Tuple[str, str, Dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _encoded(answer: Answer, with_body: bool) -> bytes:
    body = answer.body.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.media_type}; charset=utf-8\r\nContent-Length: {len(body)}\r\n{_HEADERS}\r\n"
    )
    return head.encode() + (body if with_body else b"")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reached_by(host: str) -> str:
    """The name under which whoever listens at ``host`` is reached."""
    return socket.gethostname() if host in ("0.0.0.0", "::") else host


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
