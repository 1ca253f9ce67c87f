"""The server's address, as people write it, and what the worker makes of it."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from .usage import Usage

_ATTACH = "/api/v1/workers/attach"
_SCHEMES = {"http": ("http", "ws"), "https": ("https", "wss"), "ws": ("http", "ws"), "wss": ("https", "wss")}


class BadAddress(Usage):
    """The address cannot be used; the message says why and what would be."""


class Address(NamedTuple):
    """Where a server is. ``base`` is its path without a slash at the end, usually empty.

    ``beside``: it is in the network of this machine, and no proxy leads there.
    """

    secure: bool
    host: str
    port: int
    base: str
    beside: bool = False

    @property
    def attach_url(self) -> str:
        """Where the websocket is."""
        return f"{'wss' if self.secure else 'ws'}://{self._netloc}{self.base}{_ATTACH}"

    @property
    def text(self) -> str:
        """The address for people."""
        return f"{'https' if self.secure else 'http'}://{self._netloc}{self.base}"

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def _netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse(url: str, insecure: bool = False) -> Address:
    """Read an ``http(s)`` or ``ws(s)`` URL, with or without base path and the path of the websocket.

    Raises `BadAddress`, also when the link would not be encrypted and leads off this machine.
    """
    text = url.strip()
    parts = urlsplit(text if "://" in text else "//" + text)
    try:
        port = parts.port
    except ValueError:
        raise BadAddress(f"{url}: the port is not a number") from None
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise BadAddress(f"{url}: use https://HOST:PORT (http:// for a server on this machine)")
    if parts.username or parts.password or parts.query:
        raise BadAddress("the URL must hold no credentials and no query; the token goes in --token-file")
    secure = _SCHEMES[parts.scheme][0] == "https"
    base = parts.path.rstrip("/")
    if base.endswith(_ATTACH):
        base = base[: -len(_ATTACH)]
    address = Address(secure, parts.hostname, port or (443 if secure else 80), base)
    if not (secure or insecure or address.loopback):
        raise BadAddress(
            f"{text} is not encrypted: use wss:// (https:// for --artifact-url), "
            "or --insecure on a network you trust"
        )
    return address
