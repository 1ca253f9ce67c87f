"""What passes between a visitor and a service: every header either way, and addresses with tickets."""

from __future__ import annotations

import pytest

from farhand.engine.roles import Identity
from farhand.web.access import Sessions
from farhand.web.forwarding import Visit, is_chunked, preflight, to_service, to_visitor
from farhand.web.settings import WebSettings
from farhand.web.tickets import Address, address_of, bought

VISIT = Visit("/base/services/llm", "192.0.2.7", "https", "flows.example.org", by_token=True)
FORWARDED = [
    (b"host", b"flows.example.org"),
    (b"x-forwarded-for", b"192.0.2.7"),
    (b"x-forwarded-host", b"flows.example.org"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-prefix", b"/base/services/llm"),
]


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ([(b"accept", b"*/*"), (b"x-own", b"1")], [(b"accept", b"*/*"), (b"x-own", b"1")]),
        ([(b"authorization", b"Bearer t"), (b"cookie", b"farhand-1=a")], []),
        ([(b"x-forwarded-for", b"10.0.0.1"), (b"forwarded", b"for=a"), (b"host", b"other")], []),
        ([(b"connection", b"close, X-Mine"), (b"x-mine", b"1"), (b"upgrade", b"h2c"), (b"te", b"a")], []),
        ([(b"transfer-encoding", b"chunked"), (b"expect", b"100-continue"), (b"origin", b"null")], []),
        ([(b"content-length", b"5")], [(b"content-length", b"5")]),
    ],
)
def test_a_service_sees_the_request_and_nothing_that_is_farhands(
    given: list[tuple[bytes, bytes]], passed: list[tuple[bytes, bytes]]
) -> None:
    assert to_service(given, VISIT) == [*FORWARDED, *passed]


def test_a_token_for_the_service_itself_reaches_it_at_an_address_with_a_ticket() -> None:
    visit = Visit("/services/llm/~t", "", "http", "h", by_token=False)
    assert (b"authorization", b"own") in to_service([(b"authorization", b"own")], visit)


def test_a_body_of_unknown_length_is_told_by_its_encoding() -> None:
    assert is_chunked([(b"transfer-encoding", b"chunked")])
    assert not is_chunked([(b"content-length", b"1")])


@pytest.mark.parametrize(
    "name",
    [
        b"set-cookie",
        b"clear-site-data",
        b"strict-transport-security",
        b"service-worker-allowed",
        b"alt-svc",
        b"connection",
        b"keep-alive",
        b"transfer-encoding",
        b"server",
        b"date",
    ],
)
def test_nothing_that_would_speak_for_the_whole_address_reaches_a_browser(name: bytes) -> None:
    found = to_visitor([(name, b"x"), (b"content-type", b"text/html")], VISIT)
    assert name not in dict(found)
    assert (b"content-type", b"text/html") in found


def test_every_answer_is_a_page_of_no_origin_whatever_else_it_says_of_that() -> None:
    own = [(b"content-security-policy", b"default-src *"), (b"access-control-allow-origin", b"https://a")]
    found = to_visitor([*own, (b"cross-origin-opener-policy", b"same-origin")], VISIT)
    policies = [value for name, value in found if name == b"content-security-policy"]
    assert policies[0] == b"default-src *"
    assert policies[1].startswith(b"sandbox ")
    assert b"allow-same-origin" not in policies[1]
    assert b"allow-top-navigation" not in policies[1]
    assert [value for name, value in found if name == b"access-control-allow-origin"] == [b"*"]
    assert dict(found)[b"cross-origin-opener-policy"] == b"unsafe-none"


@pytest.mark.parametrize(
    ("given", "led"),
    [
        (b"/login?next=%2F", b"/base/services/llm/login?next=%2F"),
        (b"login", b"login"),
        (b"../up", b"../up"),
        (b"/base/services/llm/a", b"/base/services/llm/a"),
        (b"https://flows.example.org/a#b", b"/base/services/llm/a#b"),
        (b"https://flows.example.org/base/services/llm/a", b"/base/services/llm/a"),
        (b"https://elsewhere.example/a", b"https://elsewhere.example/a"),
        (b"//elsewhere.example/a", b"//elsewhere.example/a"),
        (b"http://[", b"http://["),
    ],
)
def test_where_an_answer_leads_is_led_through_the_server_if_it_is_in_the_service(
    given: bytes, led: bytes
) -> None:
    assert dict(to_visitor([(b"location", given)], VISIT))[b"location"] == led


def test_a_page_of_a_service_may_ask_it_anything() -> None:
    asked = {b"access-control-request-method": b"PUT", b"access-control-request-headers": b"x-own"}
    found = dict(preflight(asked) or [])
    assert found[b"access-control-allow-methods"] == b"PUT"
    assert found[b"access-control-allow-headers"] == b"x-own"
    assert preflight({}) is None


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/services/llm/", Address("llm", "", "")),
        ("/services/llm/a/b", Address("llm", "", "a/b")),
        ("/services/llm/~t/a/b", Address("llm", "t", "a/b")),
        ("/services/llm/~t/", Address("llm", "t", "")),
        ("/services/llm/~t", Address("llm", "t", "")),
        ("/services/llm/a/~t/", Address("llm", "", "a/~t/")),
        ("/services/llm", None),
        ("/services/", None),
        ("/api/v1/services/llm/logs", None),
    ],
)
def test_a_path_says_which_service_and_by_which_ticket(path: str, address: Address | None) -> None:
    assert address_of(path) == address


@pytest.mark.parametrize(
    ("rest", "to"), [("", "~t/"), ("a", "~t/a"), ("a/b", "../~t/a/b"), ("a/", "../~t/a/")]
)
def test_a_visitor_is_sent_on_relative_to_where_it_asked(rest: str, to: str) -> None:
    assert bought(Address("llm", "", rest), "t") == to


def test_a_ticket_is_no_cookie_and_opens_one_service_while_the_sign_in_lasts() -> None:
    now = [1000.0]
    sessions = Sessions(WebSettings(session_s=60), now=lambda: now[0])
    visitor = Identity("operator", "ann", (), "jti")
    ticket = sessions.seal(visitor, "llm")
    assert sessions.open(ticket, "llm") == visitor
    assert sessions.open(ticket, "other") is None
    assert sessions.open(ticket) is None
    assert sessions.open(sessions.seal(visitor), "llm") is None
    now[0] += 61
    assert sessions.open(ticket, "llm") is None


OWN = Visit("", "192.0.2.7", "https", "llm.apps.example.org", by_token=False, own=True)


def test_at_a_host_of_its_own_a_service_has_cookies_and_origin_and_none_of_our_cookies() -> None:
    given = [
        (b"cookie", b"farhand-service-8420=t; own=1; __Host-Farhand-x=t;farhand-8420=s; other=2"),
        (b"origin", b"https://llm.apps.example.org"),
        (b"referer", b"https://llm.apps.example.org/a"),
        (b"x-forwarded-for", b"10.0.0.1"),
        (b"farhand-session", b"s"),
    ]
    passed = to_service(given, OWN)
    assert passed[-3:] == [(b"cookie", b"own=1; other=2"), given[1], given[2]]
    assert dict(passed)[b"x-forwarded-for"] == b"192.0.2.7"
    assert b"x-forwarded-prefix" not in dict(passed)
    assert b"cookie" not in dict(to_service([(b"cookie", b"farhand-service-8420=t")], OWN))


@pytest.mark.parametrize(
    ("name", "value", "passed"),
    [
        (b"set-cookie", b"own=1; Path=/; HttpOnly", b"own=1; Path=/; HttpOnly"),
        (b"set-cookie", b"own=1; DOMAIN = example.org; Path=/", b"own=1; Path=/"),
        (b"set-cookie", b" Farhand-8420=x; Path=/", None),
        (b"set-cookie", b"farhand-service-8420=x", None),
        (b"content-security-policy", b"default-src 'self'", b"default-src 'self'"),
        (b"service-worker-allowed", b"/", b"/"),
        (b"location", b"/lab?x=1", b"/lab?x=1"),
        (b"location", b"http://llm.apps.example.org/lab", b"/lab"),
        (b"location", b"https://elsewhere.example/", b"https://elsewhere.example/"),
        (b"clear-site-data", b'"*"', None),
        (b"strict-transport-security", b"max-age=1; includeSubDomains", None),
        (b"alt-svc", b"h3", None),
        (b"connection", b"close", None),
    ],
)
def test_at_a_host_of_its_own_it_speaks_for_that_host_alone(
    name: bytes, value: bytes, passed: bytes | None
) -> None:
    assert to_visitor([(name, value)], OWN) == ([] if passed is None else [(name, passed)])
