"""What short answers say; the long ones are records of `model` and `views`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WasSet:
    """What is kept under the name is this now; ``created`` when there was nothing before."""

    name: str
    created: bool


@dataclass(frozen=True, slots=True)
class WasDeleted:
    """There is nothing of that name any more."""

    name: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class FlowDeleted:
    """The flow is gone, and so many runs of it."""

    name: str
    runs: int


@dataclass(frozen=True, slots=True)
class WasRevoked:
    """The token is worth nothing; ``changed`` when it was worth something before."""

    jti: str
    revoked: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class Rotated:
    """A new key signs; so many tokens ended."""

    revoked: int


@dataclass(frozen=True, slots=True)
class Link:
    """A sign-in link, relative to the server's address."""

    path: str


@dataclass(frozen=True, slots=True)
class Status:
    """A word."""

    status: str
