"""A service with everything that HTTP has: streams both ways, cookies, redirects, a websocket.

``python pages.py PORT [websockets]``; with the standard library and ``websockets``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import sys
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

APP = """<!doctype html><title>app</title><p id=said></p><script src="/app.js"></script>"""
APP_SCRIPT = """
const tried = async (what) => { try { return await what() } catch (error) { return "refused" } };
const spoken = (address) => new Promise((resolve, reject) => {
  const link = new WebSocket(address, "spoken");
  link.onmessage = (event) => resolve(event.data);
  link.onerror = () => reject(new Error("refused"));
});
const framed = (address) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.onload = () => resolve(frame.contentDocument ? frame.contentDocument.title : "refused");
  frame.src = address;
  document.body.append(frame);
});
const told = {credentials: "include", mode: "no-cors", method: "POST"};
(async () => {
  const console_ = decodeURIComponent(location.hash.slice(1)), said = {};
  localStorage.setItem("count", Number(localStorage.getItem("count") || 0) + 1);
  said.count = localStorage.getItem("count");
  document.cookie = "mine=script; path=/";
  const site = location.hostname.split(".").slice(-2).join(".");
  document.cookie = `farhand-${location.port}=forged; path=/; domain=${site}`;
  said.cookies = (await (await fetch("/cookies")).text()).split("; ").sort();
  said.room = await tried(() => spoken(`ws://${location.host}/room`));
  said.api = await tried(async () => (await fetch(`${console_}/api/v1/runs`, {credentials: "include"})).ok);
  said.order = await tried(async () => (await fetch(`${console_}/api/v1/services/talk/stop`, told)).type);
  said.link = await tried(() => spoken(`${console_.replace("http", "ws")}/services/talk/room`));
  said.frame = await tried(() => framed(`${console_}/`));
  document.getElementById("said").textContent = JSON.stringify(said);
})();
"""
PIECE = b"0123456789abcdef" * 4096
PAGE = """<!doctype html><title>page</title><p id=said></p>
<script src="script.js"></script>"""
SCRIPT = """
const said = document.getElementById("said");
const tried = async (what) => { try { return await what() } catch (error) { return "refused" } };
(async () => {
  const part = await tried(async () => (await fetch("echo?of=part")).json().then((e) => e.target));
  const api = await tried(async () => (await fetch("/api/v1/runs")).status);
  const cookie = await tried(async () => document.cookie);
  said.textContent = JSON.stringify([part, api, cookie]);
})();
"""


class Server(ThreadingHTTPServer):
    """Has the one clock that handlers wait by."""

    daemon_threads = True
    waiting = Event()


class Handler(BaseHTTPRequestHandler):
    """Answers by the path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """What the path says."""
        known = {"/stream": self._stream, "/bytes": self._bytes, "/broken": self._broken}
        known |= {"/away": self._away, "/cookie": self._cookie, "/memory": self._memory}
        known |= {
            "/silent": Server.waiting.wait,
            "/": self._page,
            "/script.js": self._script,
            "/health": self._memory,
        }
        known.get(self.path.partition("?")[0], self._echo)()

    def do_HEAD(self) -> None:
        """A head alone."""
        self._say(b"", "text/plain", length=5)

    def do_POST(self) -> None:
        """How much came, and its digest."""
        digest, count = hashlib.sha256(), 0
        for piece in self._body():
            digest.update(piece)
            count += len(piece)
        self._say(json.dumps([count, digest.hexdigest()]).encode())

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, 65536))
            left -= len(piece)
            yield piece

    def _say(self, body: bytes, kind: str = "application/json", length: int = -1, **more: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length < 0 else length))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _echo(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._say(json.dumps({"target": self.path, "headers": headers}).encode())

    def _page(self) -> None:
        self._say(PAGE.encode(), "text/html")

    def _script(self) -> None:
        self._say(SCRIPT.encode(), "text/javascript")

    def _memory(self) -> None:
        self._say(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).encode())

    def _bytes(self) -> None:
        count = int(self.path.rpartition("=")[2])
        self.send_response(HTTPStatus.OK)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while count:
            piece = PIECE[: min(count, len(PIECE))]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            count -= len(piece)
        self.wfile.write(b"0\r\n\r\n")

    def _stream(self) -> None:
        """An event, and the next one only when a file is there."""
        gate = self.path.rpartition("=")[2]
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: first\n\n")
        while not os.path.exists(gate):
            self.wfile.write(b": waiting\n\n")  # fails once nobody reads it
            self.wfile.flush()
            Server.waiting.wait(0.05)
        self.wfile.write(b"data: second\n\n")
        self.close_connection = True

    def _broken(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"half")
        self.close_connection = True

    def _away(self) -> None:
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", "/echo?of=away")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _cookie(self) -> None:
        self._say(b"{}", Set_Cookie="farhand-1=mine; Path=/", Clear_Site_Data='"*"')

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


async def _echoes(connection: ServerConnection) -> None:
    assert connection.request is not None
    await connection.send(json.dumps([connection.request.path, connection.subprotocol]))
    async for message in connection:
        if message == "close":
            await connection.close(4001, "as told")
            return
        await connection.send(message)


def _paged(connection: ServerConnection, request: Request) -> Response | None:
    """Pages beside the websocket, as an application has them, with absolute paths and cookies."""
    known = {"/app": ("text/html", APP), "/app.js": ("text/javascript", APP_SCRIPT)}
    known["/cookies"] = ("text/plain", request.headers.get("Cookie", ""))
    path = request.path.partition("?")[0]
    if path not in known:
        return None
    kind, text = known[path]
    response = connection.respond(HTTPStatus.OK, text)
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = kind
    response.headers["Set-Cookie"] = "own=server; Path=/; HttpOnly"
    return response


async def _websockets(port: int) -> None:
    asked: Any = {"subprotocols": ["spoken"], "process_request": _paged}
    async with serve(_echoes, "127.0.0.1", port, max_size=None, **asked):
        await asyncio.get_running_loop().create_future()


def main() -> None:
    """HTTP on the port, or websockets."""
    port = int(sys.argv[1])
    print(f"listens on {port}", flush=True)
    if "websockets" in sys.argv:
        asyncio.run(_websockets(port))
        return
    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
