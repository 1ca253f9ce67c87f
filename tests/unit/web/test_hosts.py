"""Which host is a service's, where a visitor is sent, and what a code is good for."""

from __future__ import annotations

import pytest

from farhand.web.hosts import Hosts
from farhand.web.openings import CODE_S, Opening, Openings
from farhand.web.settings import WebSettings

OPENING = Opening("llm", "ticket", "/a?b=1")


def hosts(domain: str, *public: str) -> Hosts:
    return Hosts(WebSettings(services_host=domain, url_hosts=public))


@pytest.mark.parametrize(
    ("domain", "host", "service"),
    [
        ("localhost", "llm.localhost:8420", "llm"),
        ("localhost", "LLM.localhost", "llm"),
        ("localhost", "a.b_c.localhost:1", "a.b_c"),
        ("localhost", "localhost:8420", ""),
        ("localhost", "127.0.0.1:8420", ""),
        ("localhost", "named.localhost", ""),
        ("localhost", "llm.apps.example.org", ""),
        ("apps.example.org", "llm.apps.example.org", "llm"),
        ("apps.example.org", "llm.localhost", "llm"),
        ("apps.example.org", "apps.example.org", ""),
        ("apps.example.org", "llmapps.example.org", ""),
        ("", "llm.localhost", ""),
        ("", "llm.apps.example.org", ""),
    ],
)
def test_a_host_below_the_domain_is_that_of_a_service(domain: str, host: str, service: str) -> None:
    assert hosts(domain, "named.localhost").service(host) == service


@pytest.mark.parametrize(
    ("domain", "scheme", "host", "origin"),
    [
        ("localhost", "http", "127.0.0.1:8420", "http://llm.localhost:8420"),
        ("localhost", "http", "[::1]:8420", "http://llm.localhost:8420"),
        ("localhost", "http", "localhost", "http://llm.localhost"),
        ("localhost", "https", "localhost:8420", ""),
        ("localhost", "http", "flows.example.org", ""),
        ("apps.example.org", "https", "flows.example.org", "https://llm.apps.example.org"),
        ("apps.example.org", "https", "flows.example.org:8443", "https://llm.apps.example.org:8443"),
        ("apps.example.org", "http", "127.0.0.1:8420", "http://llm.localhost:8420"),
        ("apps.example.org", "https", "127.0.0.1:8420", ""),
        ("", "http", "127.0.0.1:8420", ""),
        ("", "https", "flows.example.org", ""),
    ],
)
def test_a_visitor_is_sent_where_he_can_reach_it(domain: str, scheme: str, host: str, origin: str) -> None:
    assert hosts(domain).origin("llm", scheme, host) == origin


def test_a_name_with_a_dot_has_no_host_where_a_certificate_is_for_one_label() -> None:
    assert hosts("apps.example.org").origin("a.b", "https", "flows.example.org") == ""
    assert hosts("localhost").origin("a.b", "http", "localhost") == "http://a.b.localhost"


def test_a_code_works_once_for_its_service_and_for_a_minute() -> None:
    now = [0.0]
    openings = Openings(lambda: now[0])
    code = openings.sell(OPENING)
    assert openings.redeem(code, "llm") == OPENING
    assert openings.redeem(code, "llm") is None
    assert openings.redeem("made up", "llm") is None
    assert openings.redeem(openings.sell(OPENING), "other") is None
    code = openings.sell(OPENING)
    now[0] = CODE_S
    assert openings.redeem(code, "llm") is None
