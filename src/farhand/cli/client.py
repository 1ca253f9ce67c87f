"""The server as the command line sees it: found, called, and followed."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import ssl
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import httpx2

from farhand_worker.address import parse
from farhand_worker.trust import Trust

from .. import errors
from ..errors import FarhandError, Refused, Unauthorized, Unreachable, Usage
from .home import home_of

API = "/api/v1"
PATIENCE_S = 60.0
"""How long a followed server may be away before it counts as unreachable."""

_AWAY = frozenset({502, 503, 504})
"""What a server that stops, or a proxy before one that is down, answers."""

_TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
_STREAM_TIMEOUT = httpx2.Timeout(60.0, connect=5.0)


class Client:
    """Calls of one server. Paths are those below /api/v1; errors are those of `farhand.errors`."""

    def __init__(self, url: str, token: Callable[[], str], insecure: bool = False, pin: str = "") -> None:
        self.url = url.rstrip("/")
        _check_url(self.url, insecure)
        self._token = token
        # A proxy cannot reach what listens on this machine's loopback.
        local = _is_local(self.url)
        verify = _pinned(self.url, pin) if pin else not (local and self.url.startswith("http:"))
        # Without TLS nothing is verified: to load all that TLS trusts would take longer than most calls do.
        self._http = httpx2.Client(timeout=_TIMEOUT, trust_env=not local, verify=verify)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the connections."""
        self._http.close()

    def answers(self) -> bool:
        """Whether a server is there and ready."""
        try:
            return self._http.get(f"{self.url}/readyz").is_success
        except httpx2.HTTPError:
            return False

    def get(self, path: str, **params: Any) -> Any:
        """The decoded answer to GET."""
        asked = {name: value for name, value in params.items() if value is not None}
        return self._send("GET", path, params=asked).json()

    def post(self, path: str, body: Any = None, timeout_s: float | None = None) -> Any:
        """The decoded answer to POST, which may take longer than usual with a ``timeout_s``."""
        patience: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
        return self._send("POST", path, json=body, **patience).json()

    def put(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The decoded answer to PUT."""
        return self._send("PUT", path, json=body, headers=headers).json()

    def patch(self, path: str, body: Any = None) -> Any:
        """The decoded answer to PATCH."""
        return self._send("PATCH", path, json=body).json()

    def delete(self, path: str, **params: Any) -> Any:
        """The decoded answer to DELETE, None when it is empty."""
        asked = {name: value for name, value in params.items() if value is not None}
        response = self._send("DELETE", path, params=asked)
        return response.json() if response.content else None

    def put_bytes(self, path: str, content: bytes) -> Any:
        """The decoded answer to PUT of bytes."""
        return self._send("PUT", path, content=content).json()

    @contextmanager
    def stream(self, method: str, path: str) -> Generator[Iterator[bytes]]:
        """The bytes of a long answer, as they come."""
        with (
            _reaching(self.url),
            self._http.stream(
                method, f"{self.url}{API}{path}", headers=self._headers(), timeout=_STREAM_TIMEOUT
            ) as response,
        ):
            if not response.is_success:
                response.read()
                raise _said(response)
            yield response.iter_bytes()

    def read(self, path: str) -> bytes:
        """The bytes of GET."""
        return self._send("GET", path).content

    def download(self, path: str) -> Generator[bytes]:
        """The bytes of GET in parts, for what may be large."""
        where = f"{self.url}{API}{path}"
        with _reaching(self.url), self._http.stream("GET", where, headers=self._headers()) as response:
            if not response.is_success:
                response.read()
                raise _said(response)
            yield from response.iter_bytes()

    def follow(self, run: str | None = None) -> Generator[None]:
        """Yields at once, and then whenever something about a run (any run) may have changed.

        It never ends by itself.

        A server that goes away is waited for; after a reconnect it yields, because something may have
        been missed. Raises `Unreachable` when no server answers for `PATIENCE_S`.
        """
        pause_s, deadline = 0.1, time.monotonic() + PATIENCE_S
        while True:
            try:
                for _ in self._notices(run):
                    pause_s, deadline = 0.1, time.monotonic() + PATIENCE_S
                    yield
            except (httpx2.HTTPError, Unreachable) as error:
                if time.monotonic() > deadline:
                    raise Unreachable(f"{self.url} does not answer any more ({error})") from error
            time.sleep(pause_s)
            pause_s = min(5.0, pause_s * 2)

    def _notices(self, run: str | None) -> Generator[None]:
        where = f"{self.url}{API}/stream"
        headers = self._headers()
        with self._http.stream(
            "GET", where, params={} if run is None else {"run": run}, headers=headers, timeout=_STREAM_TIMEOUT
        ) as response:
            if not response.is_success:
                response.read()
                if response.status_code in _AWAY:
                    raise Unreachable(f"{self.url} answered {response.status_code}")
                raise _said(response)
            yield
            for line in response.iter_lines():
                if line.startswith("data:"):
                    yield

    def _send(
        self, method: str, path: str, headers: dict[str, str] | None = None, **call: Any
    ) -> httpx2.Response:
        sent = {**self._headers(), **(headers or {})}
        with _reaching(self.url):
            response = self._http.request(
                method, f"{self.url}{API}{path}", headers=sent, follow_redirects=False, **call
            )
        if not response.is_success:
            raise _said(response)
        return response

    def _headers(self) -> dict[str, str]:
        token = self._token()
        if not token.isascii() or not token.isprintable() or " " in token:
            raise Usage("the token is not one word of plain characters; check what it was copied from")
        return {"Authorization": f"Bearer {token}"}


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


@contextmanager
def _reaching(url: str) -> Generator[None]:
    try:
        yield
    except httpx2.HTTPError as error:
        raise Unreachable(f"{url} does not answer ({_reason(error)}); is the server running?") from error


def _reason(error: Exception) -> str:
    """What the system says of a connection, without its number."""
    if "WRONG_VERSION_NUMBER" in str(error):
        return "it speaks no TLS; is its address http://?"
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__


def _said(response: httpx2.Response) -> FarhandError:
    """The error that a problem+json answer describes."""
    try:
        problem = json.loads(response.content)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        where = urlsplit(str(response.url)).netloc
        return Refused(f"{where} answered {response.status_code}, and not as a farhand server does")
    if response.status_code == 404 and detail == "Not Found":
        where = f"{response.url.scheme}://{response.url.netloc.decode()}{response.url.path}"
        return Usage(f"the server has no {where}; check its address, or which version it is")
    known = _by_code().get(code)
    if known is not None:
        return known(detail)
    if response.status_code in (401, 403):
        return Refused(detail)
    return Usage(detail) if response.status_code < 500 else FarhandError(detail)


def _by_code() -> dict[str, type[FarhandError]]:
    classes = [item for item in vars(errors).values() if isinstance(item, type)]
    return {cls.code: cls for cls in classes if issubclass(cls, FarhandError)}


# ---------------------------------------------------------------- finding the server


def find(url: str | None = None, home: Path | None = None, insecure: bool = False) -> Client:
    """The server at ``url`` or FARHAND_URL, with FARHAND_TOKEN; else the one that runs on the home."""
    url = url or os.environ.get("FARHAND_URL")
    place = home_of(home)
    if url is None:
        return Client(_local_url(place), lambda: _local_token(place), pin=_local(place).get("pin", ""))
    given = _given_token()
    if given is None and _runs_here(url, place):
        return Client(url, lambda: _local_token(place), pin=_local(place).get("pin", ""))
    if given is None:
        raise Unauthorized(f"a token for {url} is needed; put it in FARHAND_TOKEN or FARHAND_TOKEN_FILE")
    return Client(url, lambda: given, insecure)


def _given_token() -> str | None:
    return _secret("FARHAND_TOKEN")


def _local_token(home: Path) -> str:
    token = _given_token() or _secret("FARHAND_ADMIN_TOKEN")
    if token is not None:
        return token
    path = home / "admin-token"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise Unauthorized(f"{path} cannot be read ({error.strerror}); set FARHAND_TOKEN") from error


def _secret(variable: str) -> str | None:
    """A secret from the environment, or from the file that the environment names."""
    if text := os.environ.get(variable, "").strip():
        return text
    name = os.environ.get(f"{variable}_FILE")
    if not name:
        return None
    try:
        return Path(name).read_text().strip()
    except OSError as error:
        raise Usage(f"{variable}_FILE names {name}, which cannot be read ({error.strerror})") from error


def _local_url(home: Path) -> str:
    return _local(home)["url"]


def _local(home: Path) -> dict[str, Any]:
    """What the server that runs on a home has left word of."""
    try:
        found = json.loads((home / "server.json").read_text())
        return {**found, "url": str(found["url"])}
    except FileNotFoundError:
        raise Unreachable(
            f"no server runs on {home}; start one with `farhand serve`, or name one with --url"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Usage(f"{home / 'server.json'} cannot be read ({error})") from error


def _pinned(url: str, pin: str) -> ssl.SSLContext:
    """TLS with the one server that has the pinned certificate."""
    try:
        return Trust(pin).context(parse(url))
    except OSError as error:
        raise Unreachable(f"{url} does not answer ({error}); is the server running?") from error


def _runs_here(url: str, home: Path) -> bool:
    try:
        return _local_url(home).rstrip("/") == url.rstrip("/")
    except FarhandError:
        return False


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _has_port(parts: SplitResult) -> bool:
    """Whether the port is one, or is left out."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def _check_url(url: str, insecure: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(parts):
        raise Usage(
            f"{url!r} is not the address of a server; one reads like https://host or http://host:8420"
        )
    if parts.scheme == "http" and not _is_local(url) and not insecure:
        raise Usage(f"{url} would send the token unencrypted; use https, or --insecure where that is meant")
