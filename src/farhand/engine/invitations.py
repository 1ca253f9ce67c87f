"""Invitations: one line to paste on another machine, which buys that machine its token, once.

The line holds a code, never a token; the server keeps only the code's hash. Whoever has the code first has
the token, so a code that was seen by somebody else is noticed: the machine it was meant for is refused.
"""

from __future__ import annotations

import hashlib
import secrets
import time

from ..errors import NotInvited, Usage
from ..model import Invitation, Token
from ..store import Store
from .roles import WORKER
from .tokens import YEAR_S, Tokens, draft

VALID_S = 15 * 60.0
"""How long an invitation waits, unless it says otherwise."""

VALID_S_MAX = 30 * 24 * 3600.0


class Invitations:
    """Makes invitations, and gives a token for each."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store = store
        self._tokens = tokens

    async def create(
        self, name: str, labels: tuple[str, ...], token_s: float = YEAR_S, valid_s: float = VALID_S
    ) -> tuple[str, Invitation]:
        """A new invitation and its code, which is returned this once. Raises `Usage`."""
        draft(name, WORKER, labels, token_s)
        if not 0 < valid_s <= VALID_S_MAX:
            raise Usage("an invitation waits for more than 0 seconds and at most 30 days")
        code, now = secrets.token_urlsafe(24), time.time()
        invitation = Invitation(secrets.token_hex(8), _hash(code), name, labels, token_s, now, now + valid_s)
        await self._store.invitations.add(invitation)
        return code, invitation

    async def redeem(self, code: str, address: str) -> tuple[str, Token]:
        """The token that ``code`` buys. Raises `NotInvited`, saying what became of the invitation."""
        invitation, now = await self._store.invitations.find(_hash(code)), time.time()
        if invitation is None:
            raise NotInvited
        token = draft(invitation.name, WORKER, invitation.labels, invitation.token_s)
        if await self._store.invitations.use(invitation.id, token, now, address):
            return self._tokens.text_of(token), token
        raise _useless(invitation, now)

    async def check(self, code: str) -> Invitation:
        """The invitation of a code that would buy a token now; it stays good. Raises `NotInvited`."""
        invitation, now = await self._store.invitations.find(_hash(code)), time.time()
        if invitation is None:
            raise NotInvited
        if invitation.used_at is not None or invitation.expires_at <= now:
            raise _useless(invitation, now)
        return invitation


def _useless(invitation: Invitation, now: float) -> NotInvited:
    if invitation.expires_at <= now:
        return NotInvited(f"the invitation of {invitation.name} has expired; make another")
    return NotInvited(
        f"the invitation of {invitation.name} has been used; if not by you, revoke the token of"
        " that name, and make another"
    )


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
