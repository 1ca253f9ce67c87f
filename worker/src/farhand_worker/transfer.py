"""Files to and from the server, by digest, over HTTP. Everything here blocks and runs in threads.

Both ways go on where they were broken off: a download by ``Range``, a long upload by ``Content-Range``.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import ssl
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import __version__
from .address import Address
from .digests import CHUNK_BYTES, copy_hashed, feed, file_digest
from .trust import Trust
from .ways import connection_to

_ARTIFACTS = "/api/v1/artifacts/"

PART_BYTES = 4 * 1024 * 1024
"""What is larger is sent in parts of this size."""

_TIMEOUT_S = 30.0
SESSION_HEADER = "Farhand-Session"
"""An instance and its session key: with it a token that has expired since is still good."""

DIGEST_HEADER = "Farhand-Digest"
"""In an answer: the digest of what lies under that path."""

_ANSWERS_BYTES_MAX = 64 * 1024
_LATER = frozenset({408, 409, 425, 429})
_OK = frozenset({200, 201, 202, 204, 206})


class Claim(NamedTuple):
    """The job, and its lease, that something is fetched or sent for."""

    job: str
    lease: int

    def headers(self) -> Dict[str, str]:
        """As a request says it."""
        return {"Farhand-Job": self.job, "Farhand-Lease": str(self.lease)}


class Part(NamedTuple):
    """The bytes of a file that are the body of a request; it can be sent again."""

    source: Path
    start: int
    end: int

    def send(self, connection: http.client.HTTPConnection) -> None:
        """Send them after the head: within the kernel, where nothing has to be encrypted.

        Raises `_Unreadable` for the file, and other OSErrors for the connection.
        """
        try:
            file = self.source.open("rb", buffering=0)
        except OSError as error:
            raise _Unreadable(error) from error
        with file:
            if isinstance(connection.sock, ssl.SSLSocket):
                sent = self._send_read(file, connection.sock)
            else:
                sent = connection.sock.sendfile(file, self.start, self.end - self.start)
        if sent != self.end - self.start:
            raise _Unreadable(FileNotFoundError(f"{self.source} is shorter than it was"))

    def _send_read(self, file: Any, sock: ssl.SSLSocket) -> int:
        file.seek(self.start)
        at = self.start
        while at < self.end:
            try:
                piece = file.read(min(CHUNK_BYTES, self.end - at))
            except OSError as error:
                raise _Unreadable(error) from error
            if not piece:
                break
            sock.sendall(piece)
            at += len(piece)
        return at - self.start


class TransferFailed(Exception):
    """A file did not come or go; ``final`` says that trying again would not help."""

    def __init__(self, message: str, final: bool, status: int = 0) -> None:
        super().__init__(message)
        self.final = final
        self.status = status


class Corrupt(TransferFailed):
    """What arrived is not what the digest says; it is worth one more try."""


class Transfer:
    """Gets and puts files. ``address`` may change between calls: a server can come back elsewhere.

    Each thread keeps its connections, so that a file costs no handshake.

    ``artifacts`` is another way to the server's artifacts, where there is one; ``session`` is sent in
    `SESSION_HEADER`, once there is one; ``copy`` brings a file by a shorter way, where there is one.
    """

    def __init__(
        self,
        token: str,
        address: Optional[Address] = None,
        pin: Optional[str] = None,
        artifacts: Optional[Address] = None,
    ) -> None:
        self._token = token
        self._artifacts = artifacts
        self._trust = Trust(pin)
        self._trust_apart = Trust()
        self._kept = threading.local()
        self.address = address
        self.session = ""
        self.copy: Optional[Callable[[str, Path], bool]] = None

    def tls(self) -> ssl.SSLContext:
        """The one TLS context, always one that verifies. May look at the server first; raises OSError."""
        if self.address is None:
            raise TransferFailed("no server is known yet", False)
        return self._trust.context(self.address)

    def renew_trust(self) -> None:
        """The server was not reached: who it is, and whom this machine trusts, is looked at again."""
        self._trust.renew()
        self._trust_apart.renew()

    def get(
        self, path: str, digest: str, target: Path, claim: Optional[Claim] = None, named: bool = False
    ) -> None:
        """Download ``path`` to ``target``, whole and verified or not at all. Raises `TransferFailed`.

        What has come of it by then is kept beside it, and the next try goes on from there. ``named``: the
        server itself has told the job of this digest, and need not be asked whether it may have it.
        """
        if claim is not None and self._copied(digest, target, claim, named):
            return
        partial = target.with_name(f".arriving-{target.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        here = partial.stat().st_size if partial.exists() else 0
        headers = claim.headers() if claim is not None else {}
        if here:
            headers["Range"] = f"bytes={here}-"

        arrived: List[str] = []

        def receive(response: http.client.HTTPResponse) -> None:
            arrived.append(_receive(response, partial))

        try:
            self._exchange("GET", path, headers, None, receive)
        except TransferFailed as error:
            if error.status != 416:
                raise
            arrived.append(file_digest(partial))  # all of it had come already
        if arrived != [digest]:
            partial.unlink()
            raise Corrupt(f"what arrived is not {digest}", False)
        os.replace(partial, target)

    def digest_at(self, path: str) -> Optional[str]:
        """The digest of what lies under a path now, where the head of the answer says it.

        Raises `TransferFailed`.
        """
        found: List[Optional[str]] = []

        def look(response: http.client.HTTPResponse) -> None:
            found.append(response.getheader(DIGEST_HEADER))
            response.read(_ANSWERS_BYTES_MAX)
            if not response.isclosed():  # all of it was sent, not the one byte that was asked for
                self.close()

        self._exchange("GET", path, {"Range": "bytes=0-0"}, None, look)
        return found[0]

    def _copied(self, digest: str, target: Path, claim: Claim, named: bool) -> bool:
        """Whether the file came from where the server has it; what the job may read is asked all the same."""
        if self.copy is None or not (named or self.has(digest, claim)):
            return False
        return self.copy(digest, target)

    def ask_to_take(self, digest: str, token: str, size: int, claim: Claim) -> None:
        """Have the server take the file that was laid in its directory. Raises `TransferFailed`.

        It answers every few seconds while it reads a large one.
        """
        headers = {**claim.headers(), "Farhand-Laid": f"{token} {size}", "Content-Length": "0"}
        while self._answer("PUT", _ARTIFACTS + digest, headers)[0] == 202:
            pass

    def put(self, digest: str, source: Path, claim: Claim) -> None:
        """Upload the file ``source`` under ``digest``. Raises `TransferFailed`, or OSError for the file."""
        size = source.stat().st_size
        path = _ARTIFACTS + digest
        if size <= PART_BYTES:
            self._send(path, source, 0, size, claim.headers())
            return
        try:
            self._put_parts(path, source, size, claim)
        except TransferFailed as error:
            if error.status != 409:
                raise
            self._put_parts(path, source, size, claim)  # a part that was cut had come further than we knew

    def _put_parts(self, path: str, source: Path, size: int, claim: Claim) -> None:
        headers = {**claim.headers(), "Content-Range": f"bytes */{size}", "Content-Length": "0"}
        status, answer = self._answer("PUT", path, headers)
        while status == 202:
            start = int(answer["received"])
            end = min(start + PART_BYTES, size)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
            status, answer = self._send(path, source, start, end, headers)

    def has(self, digest: str, claim: Claim) -> bool:
        """Whether the server holds ``digest``. Raises `TransferFailed` when it does not say."""
        try:
            self._answer("HEAD", _ARTIFACTS + digest, claim.headers())
        except TransferFailed as error:
            if error.status == 404:
                return False
            raise
        return True

    def close(self) -> None:
        """Let go of this thread's connections."""
        for connection in self._kept.__dict__.pop("connections", {}).values():
            connection.close()

    # ------------------------------------------------------------ requests

    def _send(
        self, path: str, source: Path, start: int, end: int, headers: Dict[str, str]
    ) -> Tuple[int, Dict[str, Any]]:
        length = {"Content-Length": str(end - start), "Content-Type": "application/octet-stream"}
        return self._answer("PUT", path, {**headers, **length}, Part(source, start, end))

    def _answer(
        self, method: str, path: str, headers: Dict[str, str], body: Optional[Part] = None
    ) -> Tuple[int, Dict[str, Any]]:
        answers: List[Tuple[int, bytes]] = []

        def read(response: http.client.HTTPResponse) -> None:
            answers.append((response.status, response.read(_ANSWERS_BYTES_MAX)))

        self._exchange(method, path, headers, body, read)
        status, text = answers[0]
        try:
            return status, json.loads(text) if text and method != "HEAD" else {}
        except ValueError as error:
            raise TransferFailed(f"{method} {path}: not an answer of this protocol", False) from error

    def _exchange(
        self,
        method: str,
        path: str,
        headers: Dict[str, str],
        body: Optional[Part],
        consume: Callable[[http.client.HTTPResponse], object],
    ) -> None:
        every = {"Authorization": f"Bearer {self._token}", "User-Agent": f"farhand-worker/{__version__}"}
        if self.session:
            every[SESSION_HEADER] = self.session
        try:
            response = self._asked(method, path, {**every, **headers}, body)
            if response.status not in _OK:
                final = 400 <= response.status < 500 and response.status not in _LATER
                message = f"{method} {path}: the server answered {response.status}"
                raise TransferFailed(message, final, response.status)
            consume(response)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if isinstance(error, _Unreadable):
                raise error.reason from None
            raise TransferFailed(f"{method} {path}: {error or type(error).__name__}", False) from error
        except BaseException:  # what is left of the answer must not be taken for the next one
            self.close()
            raise

    def _way(self, path: str) -> Address:
        apart = self._artifacts if path.startswith(_ARTIFACTS) else None
        address = apart or self.address
        if address is None:
            raise TransferFailed("no server is known yet", False)
        return address

    def _context(self, address: Address) -> ssl.SSLContext:
        """A pin is of the server's own certificate; what lies elsewhere is trusted as the system does."""
        own = self.address is not None and (address.host, address.port) == (
            self.address.host,
            self.address.port,
        )
        return (self._trust if own else self._trust_apart).context(address)

    def _asked(
        self, method: str, path: str, headers: Dict[str, str], body: Optional[Part]
    ) -> http.client.HTTPResponse:
        """The beginning of an answer. A kept connection that turns out to be closed is opened once more."""
        address = self._way(path)
        kept = self._kept.__dict__.setdefault("connections", {})
        connection = kept.get(address)
        old = connection is not None and connection.sock is not None
        if connection is None or not old:
            connection = kept[address] = self._opened(address)
        try:
            connection.request(method, address.base + path, None, headers)
            if body is not None:
                body.send(connection)
            return connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            if not old:
                raise
            self.close()
            return self._asked(method, path, headers, body)

    def _opened(self, address: Address) -> http.client.HTTPConnection:
        return connection_to(address, _TIMEOUT_S, self._context(address) if address.secure else None)


class _Unreadable(OSError):
    """The file to be sent cannot be read; nothing is wrong with the connection."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _receive(response: http.client.HTTPResponse, partial: Path) -> str:
    """Add to what is there when the answer goes on from there, else begin anew; the digest of it all.

    It is not synced: what a machine loses of its cache is missed when it is next looked for, and fetched.
    """
    found = hashlib.sha256()
    goes_on = response.status == 206
    if goes_on:
        feed(found, partial)
    with partial.open("ab" if goes_on else "wb", buffering=0) as file:
        digest = copy_hashed(response, file.write, found)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return digest
