"""What the web layer is told by whoever composes it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field


def _random_key() -> bytes:
    return secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class WebSettings:
    """How the application is reached.

    ``host`` and ``port`` are the address it listens on; ``url_hosts`` the names it may be called by
    besides loopback ones; ``relay_hosts`` those of login nodes that carry workers here, as they come and go.
    ``base_path`` is a prefix a proxy may leave on the path (``/farhand``).
    ``session_key`` signs the console's cookies; a key that is kept keeps people signed in over a restart.
    ``secure`` marks the cookie for TLS only. ``url`` is the address that other machines are told, ``pin``
    the fingerprint of the certificate that this server itself presents, empty behind a proxy.
    ``services_host`` is the domain below which services have hosts of their own, empty for none;
    ``service_answer_s``: so long a service may take to begin an answer; 0 is for ever.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    url_hosts: tuple[str, ...] = ()
    relay_hosts: set[str] = field(default_factory=set[str], compare=False)
    base_path: str = ""
    session_key: bytes = field(default_factory=_random_key)
    secure: bool = False
    url: str = ""
    pin: str = ""
    session_s: float = 12 * 3600.0
    link_s: float = 15 * 60.0
    services_host: str = ""
    service_answer_s: float = 300.0
    body_bytes_max: int = 8 * 1024 * 1024

    @property
    def cookie_name(self) -> str:
        """One name a port, because browsers keep cookies by host alone and servers share loopback."""
        return f"farhand-{self.port}"
