"""The audit log: what people and jobs asked to be changed, and what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..model import AuditEntry, Json, Page
from ..store import Store
from . import cursors
from .masking import Masker
from .roles import Identity

_SUBJECT_MAX = 500


def outcome_of(status: int) -> str:
    """What a status says: done, refused (the caller's mistake, or not allowed) or failed (the server's)."""
    if status < 400:
        return "done"
    return "refused" if status < 500 else "failed"


@dataclass(slots=True)
class Told:
    """An entry that is stored with the change it tells of; ``written`` once both are."""

    entry: AuditEntry
    written: bool = False


class Audit:
    """Writes entries and pages through them."""

    def __init__(self, store: Store, masker: Masker) -> None:
        self._store = store
        self._masker = masker

    async def add(
        self,
        who: Identity,
        address: str,
        action: str,
        subject: str = "",
        status: int = 200,
        details: Json | None = None,
    ) -> None:
        """Write one entry; secrets in it are masked."""
        await self._store.audit.add(self.entry(who, address, action, subject, status, details))

    def entry(
        self,
        who: Identity,
        address: str,
        action: str,
        subject: str = "",
        status: int = 200,
        details: Json | None = None,
    ) -> AuditEntry:
        """The entry that `add` writes."""
        mask = self._masker
        return AuditEntry(
            id=0,
            at=time.time(),
            role=who.role,
            actor=mask(who.name),
            jti=who.jti,
            address=address,
            action=action,
            subject=mask(subject)[:_SUBJECT_MAX].encode("utf-8", "replace").decode(),
            outcome=outcome_of(status),
            status=status,
            details=mask.value(details or {}),
        )

    async def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        actor: str | None = None,
        action: str | None = None,
    ) -> Page[AuditEntry]:
        """Entries, the newest first."""
        return await self._store.audit.page(limit, cursors.of_entries(cursor), actor, action)
