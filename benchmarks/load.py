"""Clients that cost next to nothing, so that what is measured is the server: one socket each, raw HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

_LOOK_S = 0.02
"""Each look costs the server a millisecond, which is not what is measured."""

RARELY_S = 0.5
SELDOM_S = 0.05
ENDED = frozenset({"completed", "failed", "cancelled", "crashed"})


class Caller:
    """One kept connection to a server."""

    def __init__(self, url: str, token: str) -> None:
        split = urlsplit(url)
        self._host = split.netloc
        self._token = token
        self._socket = socket.create_connection((split.hostname or "", split.port or 80))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """A request's bytes."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} /api/v1{path} HTTP/1.1\r\nHost: {self._host}\r\n"
        head += f"Authorization: Bearer {self._token}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        return f"{head}\r\n".encode() + content

    def send(self, request: bytes) -> Any:
        """The decoded answer to a request."""
        self._socket.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        head, _, content = received.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(content) < int(fields[b"content-length"]):
            content += self._more()
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"{head.splitlines()[0].decode()}: {content.decode()}")
        return json.loads(content)

    def _more(self) -> bytes:
        chunk = self._socket.recv(65536)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        return chunk

    def get(self, path: str) -> Any:
        """The answer to GET."""
        return self.send(self.request("GET", path))

    def finish(self, flow: str, look_s: float = _LOOK_S, **params: Any) -> Any:
        """Run a flow to its end, looking every ``look_s`` seconds, and return its result."""
        run = self.send(self.request("POST", f"/flows/{flow}/runs", {"params": params}))
        while run["state"] not in ENDED:
            time.sleep(look_s)
            run = self.get(f"/runs/{run['id']}")
        if run["state"] != "completed":
            raise RuntimeError(f"{flow} ended {run['state']}: {run['message']}")
        return run["result"]


def is_healthy(url: str) -> bool:
    """Whether a server answers there at all."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=1)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def start_runs(url: str, token: str, flow: str, count: int, clients: int) -> float:
    """Start ``count`` runs from several clients at once; seconds until the last of them ended."""
    share, last = count // clients, list[str]()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with Caller(url, token) as caller:
                request = caller.request("POST", f"/flows/{flow}/runs", {})
                for _ in range(share - 1):
                    caller.send(request)
                last.append(caller.send(request)["id"])
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    began_at = time.time()
    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    with Caller(url, token) as caller:
        return max(_end_of(caller, run) for run in last) - began_at


def _end_of(caller: Caller, run: str) -> float:
    """When a run ended. Looks seldom: what is measured meanwhile is not how fast the server answers this."""
    while True:
        found = caller.get(f"/runs/{run}")
        if found["state"] in ENDED:
            return found["ended_at"]
        time.sleep(SELDOM_S)
