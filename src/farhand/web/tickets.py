"""Tickets: the right to use one service, in the address itself.

A page of a service has no origin, so a browser sends no cookie for its parts. Its address holds a ticket
instead, which opens that service and nothing else, for as long as the sign-in that bought it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PATH = re.compile(r"/services/([^/]+)/(?:~([^/]+)(/|$))?")


class Address(NamedTuple):
    """Which service is meant, the ticket if there is one, and the rest of the path, which the service sees.

    ``own``: by the service's own host, where all of the path is the service's.
    """

    service: str
    ticket: str
    rest: str
    own: bool = False

    @property
    def prefix(self) -> str:
        """The part of the path that this server takes off."""
        if self.own:
            return ""
        return f"/services/{self.service}" + (f"/~{self.ticket}" if self.ticket else "")


def address_of(path: str) -> Address | None:
    """The address of a service's page, or None for any other path."""
    match = PATH.match(path)
    if match is None:
        return None
    ticket = match.group(2) or ""
    return Address(match.group(1), ticket, path[match.end() :])


def bought(address: Address, ticket: str) -> str:
    """Where a visitor without a ticket is sent, relative to where it asked."""
    return "../" * address.rest.count("/") + f"~{ticket}/" + address.rest
