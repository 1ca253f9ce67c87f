"""Certificates for tests: of an authority, signed by one, or signed by nobody but themselves."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from farhand_worker.trust import pin_of_certificate

_DAY = datetime.timedelta(days=1)
_AUTHORITY = x509.BasicConstraints(ca=True, path_length=None)


class Authority:
    """Signs certificates for 127.0.0.1; its own is in ``file``."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("the authority")
        self.file = directory / "authority.pem"
        own = _draft(self._name, self._name, self._key).add_extension(_AUTHORITY, critical=True)
        _write(self.file, own.sign(self._key, hashes.SHA256()))

    def sign(self, certificate: Path, key_file: Path) -> None:
        """Write a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        draft = _draft(self._name, _named("127.0.0.1"), key).add_extension(names, critical=False)
        _write(certificate, draft.sign(self._key, hashes.SHA256()))
        _write_key(key_file, key)


def self_signed(directory: Path, name: str = "flows.example.org") -> tuple[Path, Path, str]:
    """A certificate of that name and its key, in files, and its pin."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    draft = _draft(_named(name), _named(name), key).add_extension(names, critical=False)
    certificate = draft.add_extension(_AUTHORITY, critical=True).sign(key, hashes.SHA256())
    paths = directory / f"{name}.pem", directory / f"{name}.key"
    _write(paths[0], certificate)
    _write_key(paths[1], key)
    return *paths, pin_of_certificate(certificate.public_bytes(serialization.Encoding.DER))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _draft(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now, number = datetime.datetime.now(datetime.UTC), x509.random_serial_number()
    return x509.CertificateBuilder(issuer, subject, key.public_key(), number, now - _DAY, now + _DAY)


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    plain, pem = serialization.NoEncryption(), serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
