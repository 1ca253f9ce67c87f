"""Files of a home that hold secrets, and how each small file there is written: whole, for its owner alone."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import Usage

SECRET_KEY_BYTES = 32


def signing_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file, made where there is none. Raises `Usage` for a file with something else in it."""
    if not path.exists():
        return new_signing_key(path)
    key: Any = None
    with contextlib.suppress(ValueError, TypeError):
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise Usage(f"{path} is not an Ed25519 key; move it away and a new one is made (revoking all tokens)")
    return key


def new_signing_key(path: Path) -> Ed25519PrivateKey:
    """A new key, in the place of whatever the file held."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(path, pem)
    return key


def admin_token(path: Path, environment: Mapping[str, str]) -> str:
    """The admin's token: the environment's, or the file's, made where there is none."""
    given = _from_environment("FARHAND_ADMIN_TOKEN", "the admin token", environment)
    if given is not None:
        return given
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode() + b"\n")
    return _read(path, "the admin token")


def secret_key(path: Path, environment: Mapping[str, str]) -> bytes:
    """The key that seals secrets: the environment's, or the file's, made where there is none."""
    given = _from_environment("FARHAND_SEALING_KEY", "the sealing key", environment)
    if given is None:
        if not path.exists():
            write_private(path, base64.b64encode(secrets.token_bytes(SECRET_KEY_BYTES)) + b"\n")
        given = _read(path, "the sealing key")
    key = b""
    with contextlib.suppress(binascii.Error, ValueError):
        key = base64.b64decode(given, validate=True)
    if len(key) != SECRET_KEY_BYTES:
        raise Usage(
            f"the sealing key (FARHAND_SEALING_KEY, or {path}) is not {SECRET_KEY_BYTES} bytes in base64; "
            "put back the one that the secrets were set with"
        )
    return key


def _from_environment(variable: str, what: str, environment: Mapping[str, str]) -> str | None:
    if given := environment.get(variable, "").strip():
        return given
    if given_file := environment.get(f"{variable}_FILE"):
        return _read(Path(given_file), what)
    return None


def _read(path: Path, what: str) -> str:
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise Usage(f"{what} cannot be read from {path}: {error.strerror}") from error
    if not text:
        raise Usage(f"{path} is empty; put {what} there, or remove it and a new one is made")
    return text


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; it appears whole or not at all."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
