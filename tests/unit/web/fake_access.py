"""Who may come, what was done, and what is kept for it, in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from farhand.engine.audit import outcome_of
from farhand.engine.roles import Identity
from farhand.errors import NotFound, NotInvited, Unauthorized
from farhand.model import (
    AuditEntry,
    Invitation,
    Page,
    Secret,
    Token,
    Variable,
)

from .moment import T0


class FakeTokens:
    def __init__(self) -> None:
        self.items: dict[str, Token] = {}
        self.generation = "first"
        self.revoked: set[str] = set()
        self.signed_out: set[str] = set()
        self.watchers: list[asyncio.Event] = []

    async def create(
        self, name: str, role: str, labels: tuple[str, ...], expires_s: float
    ) -> tuple[str, Token]:
        token = Token(f"jti{len(self.items)}", name, role, labels, T0, T0 + expires_s)
        self.items[token.jti] = token
        return f"text-of-{token.jti}", token

    async def list(self) -> list[Token]:
        return list(self.items.values())

    async def revoke(self, jti: str) -> bool:
        if jti not in self.items:
            raise NotFound(f"there is no token {jti}")
        token = self.items[jti]
        self.items[jti] = replace(token, revoked_at=T0)
        return token.revoked_at is None

    async def rotate_key(self) -> int:
        self.generation += "x"
        for event in self.watchers:
            event.set()
        return len(self.items)

    async def verify(self, text: str, address: str = "", session: str = "") -> Identity:
        role = text.removesuffix("-secret")
        if role == text:
            raise Unauthorized("the token is not one of this server's")
        jti = "" if role == "admin" else f"jti-of-{role}"
        return Identity(role, "gpu1" if role == "worker" else role, jti=jti)

    async def sign_out(self, identity: Identity) -> None:
        self.signed_out.add(identity.sign_in)

    async def confirm(self, identity: Identity, address: str = "") -> Identity:
        if identity.sign_in in self.signed_out:
            raise Unauthorized("this session has been signed out of")
        if identity.jti in self.revoked:
            raise Unauthorized("the token of this session has been revoked")
        return identity

    @contextmanager
    def watch(self, identity: Identity) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self.watchers.append(event)
        yield event


class FakeInvitations:
    def __init__(self, tokens: FakeTokens) -> None:
        self.tokens = tokens
        self.open: dict[str, Invitation] = {}

    async def create(
        self, name: str, labels: tuple[str, ...], token_s: float, valid_s: float
    ) -> tuple[str, Invitation]:
        made = Invitation(f"inv{len(self.open)}", "hash", name, labels, token_s, T0, T0 + valid_s)
        self.open[f"code-of-{name}"] = made
        return f"code-of-{name}", made

    async def check(self, code: str) -> Invitation:
        if code not in self.open:
            raise NotInvited
        return self.open[code]

    async def redeem(self, code: str, address: str) -> tuple[str, Token]:
        made = self.open.pop(code, None)
        if made is None:
            raise NotInvited
        return await self.tokens.create(made.name, "worker", made.labels, made.token_s)


class FakeAudit:
    def __init__(self) -> None:
        self.items: list[AuditEntry] = []

    async def add(
        self,
        who: Identity,
        address: str,
        action: str,
        subject: str = "",
        status: int = 200,
        details: Any = None,
    ) -> None:
        self.items.append(self.entry(who, address, action, subject, status, details))

    def entry(
        self,
        who: Identity,
        address: str,
        action: str,
        subject: str = "",
        status: int = 200,
        details: Any = None,
    ) -> AuditEntry:
        n = len(self.items) + 1
        outcome = outcome_of(status)
        return AuditEntry(
            n, T0, who.role, who.name, who.jti, address, action, subject, outcome, status, details or {}
        )

    async def page(self, limit: int, cursor: Any, actor: Any, action: Any) -> Page[AuditEntry]:
        fit = [e for e in self.items if actor in (None, e.actor) and action in (None, e.action)]
        return Page(fit[::-1][:limit])


class FakeSecrets:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def list(self) -> list[Secret]:
        return [Secret(name, T0, T0, "admin") for name in self.values]

    async def set(self, name: str, value: str, by: str) -> bool:
        created = name not in self.values
        self.values[name] = value
        return created

    async def delete(self, name: str) -> None:
        if self.values.pop(name, None) is None:
            raise NotFound(f"there is no secret {name!r}")


class FakeVariables:
    def __init__(self) -> None:
        self.items: dict[str, Variable] = {}

    async def list(self) -> list[Variable]:
        return list(self.items.values())

    async def get(self, name: str) -> Variable:
        if name not in self.items:
            raise NotFound(f"there is no variable {name!r}")
        return self.items[name]

    async def set(self, name: str, value: Any, by: str) -> bool:
        created = name not in self.items
        self.items[name] = Variable(name, json.dumps(value), T0, by)
        return created

    async def delete(self, name: str) -> None:
        if self.items.pop(name, None) is None:
            raise NotFound(f"there is no variable {name!r}")
