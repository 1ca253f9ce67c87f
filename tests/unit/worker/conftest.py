"""A server that speaks TLS with a certificate nobody has signed."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from farhand_worker.address import Address
from tests.harness.certificates import self_signed


@dataclass
class TlsServer:
    """What it answers to every POST, and to a GET without a ``program``; and what it was sent."""

    address: Address
    pin: str
    answer: tuple[int, object] = (200, {"token": "t.o.k", "name": "box"})
    asked: list[tuple[str, object]] = field(default_factory=list)
    program: bytes = b""


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[TlsServer]:
    certificate, key, pin = self_signed(tmp_path)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            server.asked.append((self.path, json.loads(self.rfile.read(length))))
            self.send_response(server.answer[0])
            self.end_headers()
            self.wfile.write(json.dumps(server.answer[1]).encode())

        def do_GET(self) -> None:
            server.asked.append((self.path, self.headers["Authorization"]))
            self.send_response(server.answer[0])
            self.end_headers()
            self.wfile.write(server.program or json.dumps(server.answer[1]).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # The handshake belongs to the connection's own thread: a client that goes away in it ends nothing.
        listening.socket = context.wrap_socket(
            listening.socket, server_side=True, do_handshake_on_connect=False
        )
        listening.handle_error = lambda *_: None  # type: ignore[method-assign]
        server = TlsServer(Address(True, "127.0.0.1", listening.server_address[1], "/base"), pin)
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield server
        listening.shutdown()
        thread.join(10)
