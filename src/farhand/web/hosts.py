"""Which host is whose: the console's names, and those of services, ``NAME.DOMAIN`` each.

A service that has a host of its own has an origin that holds it and nothing else. Its pages may use cookies,
storage and absolute paths as on any server: a browser keeps the console's cookie for the console's host, and
lets no page of another origin read an answer. Names below ``localhost`` lead to the visitor's own machine by
themselves (RFC 6761); any other domain is a setting.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from .settings import WebSettings

LOOPBACK = "localhost"
_NAMES_MAX = 1000
"""How many names of hosts are remembered with what they are."""


@lru_cache(_NAMES_MAX)
def host_name(netloc: str) -> str:
    """The host in ``host``, ``host:port`` or ``[v6]:port``, in lower case; empty when there is none."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:
        return ""


@lru_cache(_NAMES_MAX)
def is_loopback(name: str) -> bool:
    """Whether a host name can only be this machine."""
    if name == LOOPBACK or name.endswith(f".{LOOPBACK}"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Hosts:
    """The names of one server."""

    def __init__(self, settings: WebSettings) -> None:
        domain = settings.services_host
        self.own = frozenset(host_name(name) for name in (settings.host, *settings.url_hosts))
        self._domain = "" if domain == LOOPBACK else domain
        self._loopback = LOOPBACK if domain else ""
        self._ends = tuple(f".{each}" for each in (self._domain, self._loopback) if each)

    def service(self, host: str) -> str:
        """The service whose host a ``Host`` header names; empty for any other host."""
        name = host_name(host)
        if not name.endswith(self._ends) or name in self.own:
            return ""
        return next(name.removesuffix(end) for end in self._ends if name.endswith(end))

    def origin(self, service: str, scheme: str, host: str) -> str:
        """The origin of a service, for a visitor who is at ``host``; empty where it has none that he reaches.

        A certificate for ``*.DOMAIN`` is good for one label more; for names below localhost there is none.
        """
        domain = self._loopback if is_loopback(host_name(host)) else self._domain
        if not domain or (scheme == "https" and (domain == LOOPBACK or "." in service)):
            return ""
        _, colon, port = host.rpartition(":")
        return f"{scheme}://{service}.{domain}" + (f":{port}" if colon and port.isdigit() else "")
