"""Which headers pass between whoever uses a service through the server, and the service. Pure.

The service is user code: it sees no token and no cookie of farhand's. What it answers may run in a browser.
Under the address of the server it is told to be a page of no origin, so that it can neither read the console
nor act in the name of whoever is signed in there (the ``sandbox`` of a content security policy, CSP level 3).
At a host of its own it has an origin, cookies and policies of its own, and is kept from setting what counts
for other hosts as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    (
        b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
        b" transfer-encoding upgrade"
    ).split()
)
"""Of one connection alone: RFC 9110, section 7.6.1."""

_NOT_FOR_SERVICES = _HOP_BY_HOP | frozenset(
    (
        b"cookie expect origin referer forwarded x-forwarded-for x-forwarded-host x-forwarded-proto"
        b" x-forwarded-prefix x-real-ip farhand-session farhand-tunnel"
    ).split()
)

_THROUGH_OWN_HOST = frozenset((b"cookie", b"origin", b"referer"))
"""What a service does get at a host of its own."""

_OURS = ("farhand-", "__host-farhand-")
"""How the names of our own cookies begin, in lower case."""

_NOT_FOR_BROWSERS_AT_OWN_HOST = _HOP_BY_HOP | frozenset(
    (
        b"clear-site-data strict-transport-security public-key-pins alt-svc nel report-to reporting-endpoints"
        b" server date"
    ).split()
)
"""What would speak for the hosts beside it, or is ours to say."""

_NOT_FOR_BROWSERS = _HOP_BY_HOP | frozenset(
    (
        b"set-cookie set-cookie2 clear-site-data strict-transport-security public-key-pins alt-svc nel"
        b" report-to reporting-endpoints service-worker-allowed cross-origin-opener-policy"
        b" cross-origin-resource-policy access-control-allow-origin access-control-allow-credentials"
        b" referrer-policy server date"
    ).split()
)
"""What would speak for the whole address of the server, or is ours to say."""

SANDBOX = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"

_ALWAYS: Headers = [
    (b"content-security-policy", SANDBOX.encode()),
    (b"cross-origin-opener-policy", b"unsafe-none"),  # with a sandbox, any other is a network error
    (b"cross-origin-resource-policy", b"cross-origin"),  # its own pages have no origin
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"*"),
    (b"referrer-policy", b"no-referrer"),
]


@dataclass(frozen=True, slots=True)
class Visit:
    """A use of a service: its address under this server, who asks and how, and whether by a token.

    ``own``: at the service's own host.
    """

    prefix: str
    client: str
    scheme: str
    host: str
    by_token: bool
    own: bool = False


def to_service(headers: Iterable[tuple[bytes, bytes]], visit: Visit) -> Headers:
    """The headers of a request, as the service gets them. ``Host`` stays what the visitor said."""
    given = list(headers)
    dropped = _NOT_FOR_SERVICES - (_THROUGH_OWN_HOST if visit.own else frozenset())
    dropped |= _named_by_connection(given) | {b"host"}
    if visit.by_token:
        dropped |= {b"authorization"}
    cleaned = ((name, _not_ours(value) if name == b"cookie" else value) for name, value in given)
    passed = [(name, value) for name, value in cleaned if name not in dropped and value is not None]
    forwarded = (
        (b"host", visit.host),
        (b"x-forwarded-for", visit.client),
        (b"x-forwarded-host", visit.host),
        (b"x-forwarded-proto", visit.scheme),
        *(((b"x-forwarded-prefix", visit.prefix),) if visit.prefix else ()),
    )
    return [*((name, value.encode("latin-1", "replace")) for name, value in forwarded), *passed]


def is_chunked(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request has a body whose length nobody has told."""
    return any(name == b"transfer-encoding" for name, _ in headers)


def to_visitor(headers: Iterable[tuple[bytes, bytes]], visit: Visit) -> Headers:
    """The headers of an answer, as the visitor gets them."""
    if visit.own:
        return _to_own_host(headers, visit)
    given = list(headers)
    dropped = _NOT_FOR_BROWSERS | _named_by_connection(given)
    passed = [
        (name, _moved(value, visit) if name == b"location" else value)
        for name, value in given
        if name not in dropped
    ]
    return [*passed, *_ALWAYS]


def _to_own_host(headers: Iterable[tuple[bytes, bytes]], visit: Visit) -> Headers:
    given = list(headers)
    dropped = _NOT_FOR_BROWSERS_AT_OWN_HOST | _named_by_connection(given)
    changed = (
        (name, _AT_OWN_HOST[name](value, visit) if name in _AT_OWN_HOST else value) for name, value in given
    )
    return [(name, value) for name, value in changed if name not in dropped and value is not None]


def _not_ours(cookies: bytes) -> bytes | None:
    """A ``Cookie`` header without our own; None when nothing is left of it."""
    left = [each for each in cookies.split(b";") if not _is_ours(each)]
    return b";".join(left).strip() or None


def _of_this_host(cookie: bytes, _: Visit) -> bytes | None:
    """A ``Set-Cookie`` header that counts for the host that sets it alone; None for a name like our own."""
    pair, *attributes = cookie.split(b";")
    if _is_ours(pair):
        return None
    kept = [each for each in attributes if each.partition(b"=")[0].strip().lower() != b"domain"]
    return b";".join([pair, *kept])


def _is_ours(pair: bytes) -> bool:
    return pair.partition(b"=")[0].strip().lower().decode("latin-1").startswith(_OURS)


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    values = b",".join(value for name, value in headers if name == b"connection")
    return frozenset(part.strip().lower() for part in values.split(b","))


def _moved(location: bytes, visit: Visit) -> bytes:
    """Where an answer leads, under this server, if that is in the service."""
    try:
        to = urlsplit(location.decode("latin-1"))
    except ValueError:
        return location
    if to.netloc and to.netloc != visit.host:
        return location
    if not to.path.startswith("/") or to.path.startswith(visit.prefix + "/"):
        return location if not to.netloc else to._replace(scheme="", netloc="").geturl().encode("latin-1")
    return (visit.prefix + to._replace(scheme="", netloc="").geturl()).encode("latin-1")


_AT_OWN_HOST: dict[bytes, Callable[[bytes, Visit], bytes | None]] = {
    b"set-cookie": _of_this_host,
    b"location": _moved,
}

PREFLIGHT_S = 600


def preflight(headers: dict[bytes, bytes]) -> Headers | None:
    """The answer to a browser that asks what a page of the service may ask of it; None for any other."""
    method = headers.get(b"access-control-request-method")
    if method is None:
        return None
    asked = headers.get(b"access-control-request-headers", b"")
    return [
        *_ALWAYS,
        (b"access-control-allow-methods", method),
        *([(b"access-control-allow-headers", asked)] if asked else []),
        (b"access-control-max-age", str(PREFLIGHT_S).encode()),
    ]
