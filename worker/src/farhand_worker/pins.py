"""How people write which certificate a server must present."""

from __future__ import annotations

import re

from .usage import Usage

_PIN = re.compile(r"sha256:([0-9a-f]{64})")


class BadPin(Usage):
    """The pin is none; the message says how one reads."""


def pin_of(text: str) -> str:
    """The pin that somebody wrote, in its one form: colons and capitals, as openssl prints it, are fine."""
    kind, _, digits = text.strip().lower().partition(":")
    pin = f"{kind}:{digits.replace(':', '')}"
    if _PIN.fullmatch(pin) is None:
        raise BadPin(f"{text!r} is no fingerprint of a certificate; one reads sha256: and 64 hex digits")
    return pin
