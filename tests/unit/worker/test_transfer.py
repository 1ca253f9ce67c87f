"""Files over HTTP that breaks off: both ways go on where they were, and what is wrong is never kept."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from farhand_worker.address import Address
from farhand_worker.transfer import PART_BYTES, Claim, Corrupt, Transfer, TransferFailed
from tests.harness.certificates import self_signed

CONTENT = bytes(range(256)) * 4096 * 9  # 9 MiB and a little: three parts
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
CLAIM = Claim("job1", 7)
PATH = f"/api/v1/artifacts/{DIGEST}"


class Server(ThreadingHTTPServer):
    """Serves and takes one blob; breaks a connection after so many bytes, and notes what it is asked."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.content = CONTENT
        self.breaks_after: list[int] = []
        self.received = b""
        self.asked: list[tuple[str, str | None]] = []
        self.connections = 0

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(("GET", asked))
        if asked == "bytes=0-0":
            self._say_digest(whole=self.path == "/whole")
            return
        assert self.headers["Farhand-Job"] == "job1"
        start = int(asked[6:-1]) if asked else 0
        if start >= len(self.server.content):
            self._answer(416, b"")
            return
        rest = self.server.content[start:]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if self.server.breaks_after:
            self.wfile.write(rest[: self.server.breaks_after.pop(0)])
            self._break()
        else:
            self.wfile.write(rest)

    def _say_digest(self, whole: bool) -> None:
        content = self.server.content if whole else self.server.content[:1]
        self.send_response(200 if whole else 206)
        self.send_header("Content-Length", str(len(content)))
        if not whole:
            self.send_header("Farhand-Digest", DIGEST)
        self.end_headers()
        with suppress(OSError):  # whoever asked has seen enough
            self.wfile.write(content)

    def do_PUT(self) -> None:
        server, asked = self.server, self.headers.get("Content-Range")
        server.asked.append(("PUT", asked))
        length = int(self.headers["Content-Length"])
        if asked and length and not asked.startswith(f"bytes {len(server.received)}-"):
            self.rfile.read(length)
            self._answer(409, b"{}")
            return
        if server.breaks_after and length:
            server.received += self.rfile.read(server.breaks_after.pop(0))
            self._break()
            return
        server.received += self.rfile.read(length)
        size = int(asked.rpartition("/")[2]) if asked else length
        whole = len(server.received) == size
        self._answer(201 if whole else 202, b'{"received": %d}' % len(server.received))

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _break(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def running_server(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    running = Server(context)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@pytest.fixture
def transfer(server: Server) -> Iterator[Transfer]:
    made = Transfer("a-token", Address(False, "127.0.0.1", server.server_port, ""))
    yield made
    made.close()


def get(transfer: Transfer, target: Path) -> None:
    transfer.get(PATH, DIGEST, target, CLAIM)


def test_a_download_goes_on_where_it_was_broken_off(
    server: Server, transfer: Transfer, tmp_path: Path
) -> None:
    server.breaks_after = [1_000_000, 2_000_000]
    target = tmp_path / "blob"
    for _ in range(2):
        with pytest.raises(TransferFailed) as failed:
            get(transfer, target)
        assert not failed.value.final
        assert not target.exists()
    here = (tmp_path / ".arriving-blob").stat().st_size
    get(transfer, target)
    assert target.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked][2] == f"bytes={here}-"
    assert here > 1_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["blob"]


def test_what_has_come_whole_is_not_asked_for_again_and_what_is_wrong_is_not_kept(
    server: Server, transfer: Transfer, tmp_path: Path
) -> None:
    (tmp_path / ".arriving-blob").write_bytes(CONTENT)
    get(transfer, tmp_path / "blob")
    assert (tmp_path / "blob").read_bytes() == CONTENT
    (tmp_path / ".arriving-other").write_bytes(b"rubbish")
    with pytest.raises(Corrupt):
        get(transfer, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blob"]
    get(transfer, tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == CONTENT


@pytest.mark.parametrize(("path", "digest"), [("/part", DIGEST), ("/whole", None)])
def test_a_digest_is_learnt_from_the_head_of_an_answer_or_not(
    transfer: Transfer, tmp_path: Path, path: str, digest: str | None
) -> None:
    assert transfer.digest_at(path) == digest
    get(transfer, tmp_path / "blob")  # what was not read of that answer is not taken for this one
    assert (tmp_path / "blob").read_bytes() == CONTENT


@pytest.mark.fault("3.47")
def test_an_upload_that_is_cut_goes_on_where_it_was(
    server: Server, transfer: Transfer, tmp_path: Path
) -> None:
    """B100: parts are small enough for the limits of a proxy, and what had come is not sent again."""
    source = tmp_path / "saved"
    source.write_bytes(CONTENT)
    server.breaks_after = [PART_BYTES // 2]
    transfer.put(DIGEST, source, CLAIM)
    assert server.received == CONTENT, "every byte arrived once"
    size = len(CONTENT)
    assert ("PUT", f"bytes {PART_BYTES // 2}-{PART_BYTES // 2 + PART_BYTES - 1}/{size}") in server.asked


def test_a_thread_keeps_its_connection_and_opens_another_when_that_was_closed(
    server: Server, transfer: Transfer, tmp_path: Path
) -> None:
    source = tmp_path / "saved"
    source.write_bytes(b"small")
    for _ in range(3):
        server.received = b""
        transfer.put(DIGEST, source, CLAIM)
    assert server.connections == 1
    server.breaks_after = [0]
    server.received = b""
    transfer.put(DIGEST, source, CLAIM)
    assert server.received == b"small"
    assert server.connections == 2


def test_a_file_that_is_gone_is_said_as_that(transfer: Transfer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        transfer.put(DIGEST, tmp_path / "none", CLAIM)


def test_files_go_and_come_encrypted_too(tmp_path: Path) -> None:
    certificate, key, pin = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    source = tmp_path / "saved"
    source.write_bytes(CONTENT)
    with running_server(context) as server:
        transfer = Transfer("a-token", Address(True, "127.0.0.1", server.server_port, ""), pin)
        transfer.put(DIGEST, source, CLAIM)
        assert server.received == CONTENT
        get(transfer, tmp_path / "blob")
        assert (tmp_path / "blob").read_bytes() == CONTENT
        transfer.close()


def test_a_file_that_became_shorter_is_not_sent_as_another(
    server: Server, transfer: Transfer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "saved"
    source.write_bytes(b"content")

    class Longer:
        st_size = 9

    monkeypatch.setattr(Path, "stat", lambda *_, **__: Longer())
    with pytest.raises(FileNotFoundError, match="shorter"):
        transfer.put(DIGEST, source, CLAIM)
