"""The certificate by which workers behind a relay know this server: its own, pinned in their jobs."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from farhand_worker.trust import pin_of_certificate

from ..engine.keys import write_private

FILE_NAME = "relay.pem"
_YEARS = 20


def ensure(home: Path) -> tuple[ssl.SSLContext, str]:
    """What TLS is spoken with, and its pin. Made once and kept, as jobs in queues have the pin."""
    path = home / FILE_NAME
    if not path.exists():
        write_private(path, _made())
    text = path.read_text()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    certificate = text[text.index("-----BEGIN CERTIFICATE-----") :]
    return context, pin_of_certificate(ssl.PEM_cert_to_DER_cert(certificate.strip() + "\n"))


def _made() -> bytes:
    """A key and a certificate of it, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "farhand")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + certificate.public_bytes(pem)
