"""A server that speaks TLS with a certificate nobody has signed."""

from __future__ import annotations

import datetime
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from farhand_worker.address import Address
from farhand_worker.trust import pin_of_certificate


def write_certificate(directory: Path, name: str = "flows.example.org") -> tuple[Path, Path, str]:
    """A certificate of that name and its key, in files, and its pin."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    paths = directory / f"{name}.pem", directory / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return *paths, pin_of_certificate(certificate.public_bytes(serialization.Encoding.DER))


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
    certificate, key, pin = write_certificate(tmp_path)

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
