"""Credentials: the admin's secret, and tokens signed with EdDSA (RFC 8037) as JWTs (RFC 7519).

A token's name and role, and a worker's labels, are signed into it, so that a machine cannot choose them. The
server keeps a row a token, to list and to revoke it; the token itself it does not keep. The server's own
processors have a key of their own, which `Tokens.rotate_key` leaves alone: work on them goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from ..errors import NotFound, StoreFailed, Unauthorized, Usage
from ..model import LOCAL_WORKER, NAME_PATTERN, RESERVED_NAMES, Token
from ..store import Store
from . import keys
from .roles import ADMIN, ROLES, WORKER, Identity

YEAR_S = 365 * 24 * 3600.0
USED_EVERY_S = 60.0
"""A token's last use is written at most this often."""

_ALGORITHM = "EdDSA"
LABEL_PATTERN = NAME_PATTERN.replace(r"._-", r"._=-")
_LOCAL_PREFIX = "local-"
_VERIFIED_MAX = 1000


class Tokens:
    """Mints, verifies, lists and revokes."""

    def __init__(
        self,
        store: Store,
        home: Path,
        environment: Mapping[str, str] | None = None,
        on_end: Callable[[set[str]], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._on_end = on_end
        self._key_path = home / "token-key.pem"
        self._key = keys.signing_key(self._key_path)
        self._local_key = keys.signing_key(home / "local-key.pem")
        self._admin = keys.admin_token(
            home / "admin-token", os.environ if environment is None else environment
        )
        self._verified: dict[bytes, Identity] = {}
        self._revoked: set[str] = set()
        self._signed_out: set[str] = set()
        self._used: dict[str, float] = {}
        self._watchers: dict[asyncio.Event, Identity] = {}

    @property
    def generation(self) -> str:
        """Names the signing key; what was signed under another is worth nothing."""
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return hashlib.sha256(public).hexdigest()[:16]

    async def create(
        self, name: str, role: str, labels: tuple[str, ...], expires_s: float
    ) -> tuple[str, Token]:
        """Mint a token; its text is returned this once. Raises `Usage` for what cannot be minted."""
        token = draft(name, role, labels, expires_s)
        await self._store.tokens.add(token)
        return self.text_of(token), token

    def text_of(self, token: Token) -> str:
        """The secret of a token that was drafted here."""
        return _signed(token, self._key)

    async def local(self) -> str:
        """The token of the server's own processors."""
        jti, now = _LOCAL_PREFIX + self._store.meta.incarnation(), time.time()
        token = Token(jti, LOCAL_WORKER, WORKER, (), now, now + YEAR_S)
        if await self._store.tokens.get(jti) is None:
            await self._store.tokens.add(token)
        return _signed(token, self._local_key)

    async def list(self) -> list[Token]:
        """Every token there is, revoked ones too."""
        return [token for token in await self._store.tokens.list() if token.name != LOCAL_WORKER]

    async def revoke(self, jti: str) -> bool:
        """Revoke a token; false when it was revoked before. Raises `NotFound`.

        Whatever goes on under it ends at once: a worker's session, a console's, an event stream.
        """
        token = await self._store.tokens.get(jti)
        if token is None or token.name == LOCAL_WORKER:
            raise NotFound(f"there is no token {jti}; `farhand tokens list` shows them")
        changed = await self._store.tokens.revoke(jti, time.time())
        await self._end({jti})
        return changed

    async def rotate_key(self) -> int:
        """Sign with a new key from now on: every token and every console session ends. How many tokens."""
        self._key = await asyncio.to_thread(keys.new_signing_key, self._key_path)
        ended = await self._store.tokens.revoke_all(time.time(), but=LOCAL_WORKER)
        self._verified.clear()
        await self._end({*ended, ""})
        return len(ended)

    def session_key(self, instance: str, jti: str) -> str:
        """What a worker that was let in shows to be let in again after its token has expired."""
        secret = self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        return hmac.new(secret, f"session {instance} {jti}".encode(), hashlib.sha256).hexdigest()

    async def verify(self, text: str, address: str = "", session: str = "") -> Identity:
        """Whose token this is. Raises `Unauthorized`, saying what is wrong with it.

        ``session``, an instance and its session key with a space between, lets a token that has expired pass:
        its time matters to new instances of a worker only.
        """
        if hmac.compare_digest(text.encode(), self._admin.encode()):
            return Identity(ADMIN, ADMIN)
        digest = hashlib.sha256(text.encode()).digest()
        identity = self._verified.get(digest)
        if identity is None:
            identity = await self._verify(text)
            if len(self._verified) >= _VERIFIED_MAX:
                self._verified.clear()
            self._verified[digest] = identity
        await self._settle(identity, address, session)
        return identity

    async def sign_out(self, identity: Identity) -> None:
        """End a sign-in: its cookies, at hosts of services too, its tickets, and what is open with them."""
        if identity.sign_in:
            now = time.time()
            await self._store.sign_ins.end(identity.sign_in, identity.expires_at or now + YEAR_S, now)
            self._signed_out.add(identity.sign_in)
            self._wake(lambda who: who.sign_in == identity.sign_in)

    async def confirm(self, identity: Identity, address: str = "") -> Identity:
        """The same identity, when a console's session has not been ended, nor the token behind it."""
        if identity.sign_in and await self._store.sign_ins.has_ended(identity.sign_in):
            raise Unauthorized("this session has been signed out of; sign in again")
        if identity.jti:
            token = await self._store.tokens.get(identity.jti)
            if token is None or token.revoked_at is not None:
                raise Unauthorized("the token of this session has been revoked; sign in with another")
            await self._settle(identity, address)
        return identity

    @contextmanager
    def watch(self, identity: Identity) -> Generator[asyncio.Event]:
        """An event that is set once the identity's credential is revoked, even if it was just before, or
        its sign-in ended."""
        event = asyncio.Event()
        self._watchers[event] = identity
        if identity.jti in self._revoked or identity.sign_in in self._signed_out:
            event.set()
        try:
            yield event
        finally:
            del self._watchers[event]

    async def _verify(self, text: str) -> Identity:
        claims = self._claims(text)
        token = await self._store.tokens.get(claims["jti"])
        if token is None:
            raise Unauthorized("the token is not known here; was it minted by another server?")
        if token.revoked_at is not None or token.jti in self._revoked:
            raise Unauthorized("the token has been revoked; mint a new one on the server", worker=token.name)
        return Identity(token.role, claims["sub"], token.labels, token.jti, float(claims["exp"]))

    def _claims(self, text: str) -> dict[str, Any]:
        try:
            unchecked = jwt.decode(text, options={"verify_signature": False})
            local = str(unchecked.get("jti", "")).startswith(_LOCAL_PREFIX)
            return jwt.decode(
                text,
                (self._local_key if local else self._key).public_key(),
                algorithms=[_ALGORITHM],
                options={"require": ["exp", "jti", "sub"], "verify_exp": False},
            )
        except jwt.InvalidTokenError as error:
            raise Unauthorized("the token is not one of this server's; check that it is whole") from error

    async def _settle(self, identity: Identity, address: str, session: str = "") -> None:
        """The token is in use: not beyond its time, and noted once in a while."""
        expired = identity.expires_at is not None and identity.expires_at <= time.time()
        if expired and not self._stands(identity, session):
            message = "the token has expired; mint a new one on the server"
            raise Unauthorized(message, worker=identity.name if identity.role == WORKER else "")
        now = time.monotonic()
        if now - self._used.get(identity.jti, float("-inf")) < USED_EVERY_S:
            return
        self._used[identity.jti] = now
        with contextlib.suppress(StoreFailed):  # a full disk is no reason to turn anyone away
            await self._store.tokens.used(identity.jti, time.time(), address)

    def _stands(self, identity: Identity, session: str) -> bool:
        """Whether a worker's session began while its token was valid."""
        instance, _, key = session.partition(" ")
        expected = self.session_key(instance, identity.jti)
        return identity.role == WORKER and hmac.compare_digest(key.encode(), expected.encode())

    async def _end(self, jtis: set[str]) -> None:
        self._revoked |= jtis - {""}
        self._verified = {text: who for text, who in self._verified.items() if who.jti not in jtis}
        self._wake(lambda who: who.jti in jtis)
        if self._on_end is not None:
            await self._on_end(jtis - {""})

    def _wake(self, ended: Callable[[Identity], bool]) -> None:
        for event, who in self._watchers.items():
            if ended(who):
                event.set()


def draft(name: str, role: str, labels: tuple[str, ...], expires_s: float) -> Token:
    """A token that is valid from now, not stored yet. Raises `Usage` for what cannot be minted."""
    if role not in ROLES:
        raise Usage(f"there is no role {role!r}; the roles are {', '.join(ROLES)}")
    if labels and role != WORKER:
        raise Usage(f"labels say what a worker may be; a token of role {role} has none")
    if name in RESERVED_NAMES:
        raise Usage(f"{name!r} is reserved; choose another name")
    for word, pattern in ((name, NAME_PATTERN), *((label, LABEL_PATTERN) for label in labels)):
        if re.fullmatch(pattern, word) is None:
            raise Usage(f"{word!r} is not a name: lower-case letters, digits, '.', '_' and '-', at most 63")
    if expires_s <= 0:
        raise Usage("a token must be valid for some time; give --expires like 365d")
    now = time.time()
    return Token(secrets.token_hex(8), name, role, labels, now, now + expires_s)


def _signed(token: Token, key: Ed25519PrivateKey) -> str:
    claims = {"jti": token.jti, "sub": token.name, "role": token.role, "labels": list(token.labels)}
    claims |= {"iat": int(token.issued_at), "exp": int(token.expires_at)}
    return jwt.encode(claims, key, algorithm=_ALGORITHM)
