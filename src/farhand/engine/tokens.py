"""Credentials: the admin's secret, and worker tokens signed with EdDSA (RFC 8037) as JWTs (RFC 7519).

A worker's name and labels are signed into its token, so a machine cannot choose them. The server keeps a row
a token, to list and to revoke it; the token itself it does not keep.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import NotFound, Unauthorized, Usage
from ..model import LOCAL_WORKER, NAME_PATTERN, RESERVED_NAMES, Token
from ..store import Store

YEAR_S = 365 * 24 * 3600.0
WORKER = "worker"
ADMIN = "admin"
_ALGORITHM = "EdDSA"
_LABEL_PATTERN = NAME_PATTERN.replace(r"._-", r"._=-")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a token belongs to."""

    role: str
    name: str
    labels: tuple[str, ...] = ()
    jti: str = ""


class Tokens:
    """Mints, verifies, lists and revokes."""

    def __init__(
        self,
        store: Store,
        home: Path,
        environment: Mapping[str, str] | None = None,
        revoked: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``revoked`` is told the id of every token that is revoked."""
        self._store = store
        self._revoked = revoked
        self._key = _signing_key(home / "token-key.pem")
        self._admin = _admin_token(home / "admin-token", os.environ if environment is None else environment)

    async def create(
        self, name: str, role: str, labels: tuple[str, ...], expires_s: float
    ) -> tuple[str, Token]:
        """Mint a token; its text is returned this once. Raises `Usage` for what cannot be minted."""
        if role != WORKER:
            raise Usage(f"tokens of role {role!r} cannot be made; the role is worker")
        if name in RESERVED_NAMES:
            raise Usage(f"{name!r} is reserved; choose another name for the worker")
        for word, pattern in ((name, NAME_PATTERN), *((label, _LABEL_PATTERN) for label in labels)):
            if re.fullmatch(pattern, word) is None:
                raise Usage(
                    f"{word!r} is not a name: lower-case letters, digits, '.', '_' and '-', at most 63"
                )
        if expires_s <= 0:
            raise Usage("a token must be valid for some time; give --expires like 365d")
        return await self._mint(secrets.token_hex(8), name, labels, expires_s)

    async def local(self) -> str:
        """The token of the server's own processors."""
        jti = f"local-{self._store.meta.incarnation()}"
        text, _ = await self._mint(
            jti, LOCAL_WORKER, (), YEAR_S, keep=await self._store.tokens.get(jti) is None
        )
        return text

    async def list(self) -> list[Token]:
        """Every token there is, revoked ones too."""
        return [token for token in await self._store.tokens.list() if token.name != LOCAL_WORKER]

    async def revoke(self, jti: str) -> bool:
        """Revoke a token; false when it was revoked before. Raises `NotFound`."""
        if await self._store.tokens.get(jti) is None:
            raise NotFound(f"there is no token {jti}; `farhand tokens list` shows them")
        changed = await self._store.tokens.revoke(jti, time.time())
        self._revoked(jti)
        return changed

    async def verify(self, text: str) -> Identity:
        """Whose token this is. Raises `Unauthorized`, saying what is wrong with it."""
        if hmac.compare_digest(text.encode(), self._admin.encode()):
            return Identity(ADMIN, ADMIN)
        try:
            claims: dict[str, Any] = jwt.decode(
                text,
                self._key.public_key(),
                algorithms=[_ALGORITHM],
                options={"require": ["exp", "jti", "sub"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthorized("the token has expired; mint a new one on the server") from error
        except jwt.InvalidTokenError as error:
            raise Unauthorized("the token is not one of this server's; check that it is whole") from error
        token = await self._store.tokens.get(claims["jti"])
        if token is None:
            raise Unauthorized("the token is not known here; was it minted by another server?")
        if token.revoked_at is not None:
            raise Unauthorized("the token has been revoked; mint a new one on the server")
        return Identity(token.role, claims["sub"], tuple(claims.get("labels", ())), claims["jti"])

    async def _mint(
        self, jti: str, name: str, labels: tuple[str, ...], expires_s: float, keep: bool = True
    ) -> tuple[str, Token]:
        now = time.time()
        token = Token(jti, name, WORKER, labels, now, now + expires_s)
        claims = {"jti": jti, "sub": name, "role": WORKER, "labels": list(labels)}
        claims |= {"iat": int(now), "exp": int(now + expires_s)}
        if keep:
            await self._store.tokens.add(token)
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM), token


def _signing_key(path: Path) -> Ed25519PrivateKey:
    if path.exists():
        key: Any = None
        with contextlib.suppress(ValueError, TypeError):
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise Usage(
                f"{path} is not an Ed25519 key; move it away and a new one is made (revoking all tokens)"
            )
        return key
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_private(path, pem)
    return key


def _admin_token(path: Path, environment: Mapping[str, str]) -> str:
    if given := environment.get("FARHAND_ADMIN_TOKEN", "").strip():
        return given
    if given_file := environment.get("FARHAND_ADMIN_TOKEN_FILE"):
        return _read_secret(Path(given_file))
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(32).encode() + b"\n")
    return _read_secret(path)


def _read_secret(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise Usage(f"the admin token cannot be read from {path}: {error.strerror}") from error
    if not text:
        raise Usage(f"{path} is empty; put the admin token there, or remove it and a new one is made")
    return text


def _write_private(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
