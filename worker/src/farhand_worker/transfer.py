"""Files to and from the server, by digest, over HTTP. Everything here blocks and runs in threads."""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import tempfile
from pathlib import Path
from typing import Callable, Dict, Optional

from . import __version__
from .address import Address
from .trust import Trust

_ARTIFACTS = "/api/v1/artifacts/"
_CHUNK_BYTES = 256 * 1024
_TIMEOUT_S = 30.0
_OK = frozenset({200, 201, 204})


class TransferFailed(Exception):
    """A file did not come or go; ``final`` says that trying again would not help."""

    def __init__(self, message: str, final: bool) -> None:
        super().__init__(message)
        self.final = final


class Corrupt(TransferFailed):
    """What arrived is not what the digest says; it is worth one more try."""


class Transfer:
    """Gets and puts files. ``address`` may change between calls: a server can come back elsewhere.

    ``artifacts`` is another way to the server's artifacts, where there is one.
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
        self.address = address

    def tls(self) -> ssl.SSLContext:
        """The one TLS context, always one that verifies. May look at the server first; raises OSError."""
        if self.address is None:
            raise TransferFailed("no server is known yet", False)
        return self._trust.context(self.address)

    def get(self, path: str, digest: str, target: Path) -> None:
        """Download ``path`` to ``target``, whole and verified or not at all. Raises `TransferFailed`."""
        self._exchange("GET", path, {}, None, lambda response: _receive(response, digest, target))

    def put(self, digest: str, source: Path, headers: Dict[str, str]) -> None:
        """Upload the file ``source`` under ``digest``. Raises `TransferFailed`, or OSError for the file."""
        length = {"Content-Length": str(source.stat().st_size), "Content-Type": "application/octet-stream"}
        path = _ARTIFACTS + digest
        self._exchange("PUT", path, {**headers, **length}, source, lambda response: response.read())

    def has(self, digest: str) -> bool:
        """Whether the server holds ``digest``. Raises `TransferFailed` when it does not say."""
        try:
            self._exchange("HEAD", _ARTIFACTS + digest, {}, None, lambda response: response.read())
        except TransferFailed as error:
            if error.final:
                return False
            raise
        return True

    def _exchange(
        self,
        method: str,
        path: str,
        headers: Dict[str, str],
        source: Optional[Path],
        consume: Callable[[http.client.HTTPResponse], object],
    ) -> None:
        address = self._way(path)
        try:
            connection = self._connection(address)
        except OSError as error:
            raise TransferFailed(f"{method} {path}: {error or type(error).__name__}", False) from error
        base = address.base
        every = {"Authorization": f"Bearer {self._token}", "User-Agent": f"farhand-worker/{__version__}"}
        try:
            if source is None:
                connection.request(method, base + path, headers={**every, **headers})
            else:
                with source.open("rb") as body:
                    connection.request(method, base + path, body, {**every, **headers})
            response = connection.getresponse()
            if response.status not in _OK:
                final = 400 <= response.status < 500 and response.status not in (408, 425, 429)
                raise TransferFailed(f"{method} {path}: the server answered {response.status}", final)
            consume(response)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, FileNotFoundError) and source is not None:
                raise
            raise TransferFailed(f"{method} {path}: {error or type(error).__name__}", False) from error
        finally:
            connection.close()

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

    def _connection(self, address: Address) -> http.client.HTTPConnection:
        if address.secure:
            context = self._context(address)
            return http.client.HTTPSConnection(
                address.host, address.port, timeout=_TIMEOUT_S, context=context
            )
        return http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)


def _receive(response: http.client.HTTPResponse, digest: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=".arriving-")
    try:
        check = hashlib.sha256()
        with os.fdopen(fd, "wb") as file:
            while True:
                chunk = response.read(_CHUNK_BYTES)
                if not chunk:
                    break
                check.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if f"sha256:{check.hexdigest()}" != digest:
            raise Corrupt(f"what arrived is not {digest}", False)
        os.replace(name, target)
    finally:
        if os.path.exists(name):
            os.unlink(name)
