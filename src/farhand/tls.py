"""The server's own certificate, where no proxy stands before it."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from farhand_worker.trust import pin_of_certificate

from .errors import Usage

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate (with what it was signed by) and its key, both in PEM; ``pin`` names the first."""

    certificate: Path
    key: Path
    pin: str


def read_certificate(certificate: Path | None, key: Path | None) -> Certificate | None:
    """What TLS is spoken with; None for two unset paths. Raises `Usage` for what cannot be used."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Usage("--tls-cert and --tls-key belong together; give both, or neither behind a TLS proxy")
    try:
        found = _CERTIFICATE.search(certificate.read_text())
        key.read_bytes()
    except (OSError, ValueError) as error:
        raise Usage(f"--tls-cert or --tls-key cannot be read: {error}") from error
    if found is None:
        raise Usage(f"--tls-cert: there is no certificate in PEM in {certificate}")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, _no_password)
    except (OSError, ValueError) as error:
        raise Usage(
            f"--tls-key: {key} is not the key of {certificate}, or has a password ({error})"
        ) from error
    return Certificate(certificate, key, pin_of_certificate(ssl.PEM_cert_to_DER_cert(found[0])))


def _no_password() -> str:
    raise ValueError("a server that starts by itself cannot ask for one")
