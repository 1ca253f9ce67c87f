"""The proxy that leads out of a network, where the environment names one: the same for every connection.

``HTTPS_PROXY`` is for https and wss, ``HTTP_PROXY`` for http and ws, ``ALL_PROXY`` for either, in small
letters or capitals; what ``NO_PROXY`` names, and this machine, is reached without. The proxy is asked by
CONNECT, so it sees the server's name and port, and of an encrypted link nothing else.
"""

from __future__ import annotations

import binascii
import ipaddress
import os
from typing import Dict, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import unquote, urlsplit

from .address import Address
from .usage import Usage

_PORT = 3128

VARIABLES = ("https_proxy", "http_proxy", "all_proxy", "no_proxy")
"""What is looked at, in small letters; in capitals as well."""


class BadProxy(Usage):
    """The proxy that the environment names cannot be used; the message says why."""


class Proxy(NamedTuple):
    """Where it is, and the credentials it is sent, if any."""

    host: str
    port: int
    authorization: str = ""

    @property
    def text(self) -> str:
        """The proxy for people, without its credentials."""
        return f"{self.host}:{self.port}"

    def headers(self) -> Dict[str, str]:
        """What it is told besides the destination."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


def proxy_for(address: Address, environ: Mapping[str, str] = os.environ) -> Optional[Proxy]:
    """The proxy by which ``address`` is reached, or None. Raises `BadProxy`."""
    if address.loopback or address.beside or _excepted(address, _variable(environ, "no_proxy")[1]):
        return None
    for name in ("https_proxy" if address.secure else "http_proxy", "all_proxy"):
        called, text = _variable(environ, name)
        if text:
            return _parsed(called, text)
    return None


def _variable(environ: Mapping[str, str], name: str) -> Tuple[str, str]:
    """The name and the value of a variable; small letters go first, as everywhere."""
    for called in (name, name.upper()):
        text = environ.get(called, "").strip()
        if text:
            return called, text
    return name, ""


def _parsed(called: str, text: str) -> Proxy:
    parts = urlsplit(text if "://" in text else "http://" + text)
    try:
        port = parts.port or _PORT
    except ValueError:
        raise BadProxy(f"{called}: the port of the proxy is not a number") from None
    if parts.scheme != "http" or not parts.hostname:
        raise BadProxy(
            f"{called} names no proxy at http://HOST:PORT, and a worker goes through no other kind; "
            "name the server in NO_PROXY if it can be reached without"
        )
    if parts.username is None:
        return Proxy(parts.hostname, port)
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return Proxy(parts.hostname, port, "Basic " + binascii.b2a_base64(said, newline=False).decode())


def _excepted(address: Address, listed: str) -> bool:
    """Whether ``NO_PROXY`` names the host: by its name, a domain it is in, its address, or its network."""
    return any(_names(entry.strip().lower(), address) for entry in listed.split(",") if entry.strip())


def _names(entry: str, address: Address) -> bool:
    host = address.host.lower()
    if entry in ("*", host, f"{host}:{address.port}", f"[{host}]", f"[{host}]:{address.port}"):
        return True
    name, _, port = entry.partition(":")
    if name and (not port or port == str(address.port)) and host.endswith("." + name.lstrip("*").lstrip(".")):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
