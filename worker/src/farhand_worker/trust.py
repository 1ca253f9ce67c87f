"""Which certificate the server must present: one that the system trusts, or the one that was pinned.

A pin is ``sha256:`` and the hex digest of the certificate, as an invitation names it. The certificate is
fetched once, compared, and is then the only one that TLS connections accept: nobody else is sent a token.
"""

from __future__ import annotations

import hashlib
import ssl
from typing import Optional, cast

from .address import Address
from .ways import connection_to

_PARTIAL_CHAIN = getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)
_TIMEOUT_S = 10.0


class NotPinned(ssl.SSLError):
    """The server presents another certificate than the pinned one."""


def pin_of_certificate(der: bytes) -> str:
    """The pin of a certificate."""
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


class Trust:
    """The TLS context for one server, always one that verifies."""

    def __init__(self, pin: Optional[str] = None) -> None:
        self.pin = pin
        self._context: Optional[ssl.SSLContext] = None

    def context(self, address: Address) -> ssl.SSLContext:
        """The context; with a pin it takes a look at the server first, and blocks. Raises OSError."""
        if self._context is None:
            self._context = ssl.create_default_context() if self.pin is None else _pinned(address, self.pin)
        return self._context

    def renew(self) -> None:
        """Look again: the server's certificate, or what this machine trusts, may have changed."""
        self._context = None


def _pinned(address: Address, pin: str) -> ssl.SSLContext:
    der = _presented(address)
    if pin_of_certificate(der) != pin:
        raise NotPinned(
            f"the certificate of {address.text} is not the pinned one: it is {pin_of_certificate(der)}; if it"
            " was changed on purpose, start the worker with that as --pin (`farhand workers invite` on the"
            " server prints it), and if not, this is not the server"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the certificate itself is known, whatever names it has
    context.verify_flags |= _PARTIAL_CHAIN
    context.load_verify_locations(cadata=der)
    return context


def _presented(address: Address) -> bytes:
    """The certificate a server presents. Nothing is sent to it."""
    look = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    look.check_hostname = False
    look.verify_mode = ssl.CERT_NONE
    asked = connection_to(address, _TIMEOUT_S, look)
    try:
        asked.connect()
        return cast(ssl.SSLSocket, asked.sock).getpeercert(binary_form=True) or b""
    finally:
        asked.close()
