"""Secrets: sealed at rest with AES-256-GCM, given to jobs that declare them, shown to nobody.

The name is the associated data, so that a value moved under another name in the store does not open. The key
lies in the home, or comes from the environment; a copy of the store without it is worth nothing.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..errors import Conflict, FarhandError, Forbidden, NotFound, Usage
from ..model import NAME_PATTERN, Job, Secret
from ..store import Store
from . import keys
from .audit import Audit
from .masking import Masker
from .roles import WORKER, Identity

VALUE_BYTES_MAX = 64 * 1024
_NONCE_BYTES = 12


class Secrets:
    """Sets, lists, deletes and, for jobs, reads."""

    def __init__(
        self,
        store: Store,
        home: Path,
        masker: Masker,
        audit: Audit,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._store = store
        self._masker = masker
        self._audit = audit
        key = keys.secret_key(home / "secret-key", os.environ if environment is None else environment)
        self._cipher = AESGCM(key)
        self._key_name = hashlib.sha256(key).hexdigest()[:16]

    async def load(self) -> list[str]:
        """Learn what to mask. The names of secrets that this key does not open."""
        closed: list[str] = []
        for name, (sealed, key) in (await self._store.secrets.sealed()).items():
            try:
                self._masker.add(self._open(name, sealed, key))
            except Conflict:
                closed.append(name)
        return closed

    async def set(self, name: str, value: str, by: str) -> bool:
        """Keep a value under a name; true when there was none before. Raises `Usage`."""
        check_name(name, "a secret")
        if not value:
            raise Usage("a secret is not empty; delete it instead")
        try:
            content = value.encode()
        except UnicodeEncodeError:
            raise Usage("a secret is text; encode anything else, as base64 for example") from None
        if len(content) > VALUE_BYTES_MAX:
            raise Usage(f"a secret has at most {VALUE_BYTES_MAX} bytes")
        self._masker.add(value)
        nonce = os.urandom(_NONCE_BYTES)
        sealed = base64.b64encode(nonce + self._cipher.encrypt(nonce, content, name.encode())).decode()
        return await self._store.secrets.set(name, sealed, self._key_name, time.time(), by)

    async def list(self) -> list[Secret]:
        """Every secret by name; never a value."""
        return await self._store.secrets.list()

    async def delete(self, name: str) -> None:
        """Forget a secret. Raises `NotFound`."""
        if not await self._store.secrets.delete(name):
            raise NotFound(f"there is no secret {name!r}; `farhand secrets list` shows them")

    async def read(self, name: str, job: Job, now: float) -> str:
        """The value, for a job whose flow or task declares it.

        Raises `Forbidden` when it does not, `NotFound` when there is no such secret, `Conflict` when it was
        sealed with another key. Every read, and every refusal, is in the audit log.
        """
        who = Identity(WORKER, job.worker or "")
        details = {"run": job.run, "job": job.id, "flow": job.flow}
        try:
            value = await self._read(name, job)
        except FarhandError as error:
            await self._audit.add(who, "", "read_secret", name, error.status, details)
            raise
        await self._audit.add(who, "", "read_secret", name, 200, details)
        await self._store.secrets.note_read(name, now)
        return value

    async def _read(self, name: str, job: Job) -> str:
        if name not in job.settings.secrets:
            raise Forbidden(f"this job does not declare the secret {name!r}; add it to secrets=[…]")
        found = (await self._store.secrets.sealed()).get(name)
        if found is None:
            raise NotFound(f"there is no secret {name!r}; `farhand secrets set {name}` makes one")
        return self._open(name, *found)

    def _open(self, name: str, sealed: str, key: str) -> str:
        """The value of a sealed text."""
        content = base64.b64decode(sealed)
        try:
            opened = self._cipher.decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], name.encode())
        except InvalidTag:
            why = "was sealed with another key" if key != self._key_name else "was tampered with"
            raise Conflict(f"the secret {name!r} {why}; put the key back, or set it anew") from None
        return opened.decode()


def check_name(name: str, what: str) -> None:
    """Raises `Usage` for what is no name."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise Usage(
            f"{name!r} cannot be the name of {what}: lower-case letters, digits, '.', '_' and '-', at most 63"
        )
