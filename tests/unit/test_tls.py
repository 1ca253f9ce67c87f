"""The server's own certificate: what cannot be used is refused before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from farhand import config
from farhand.errors import Usage
from farhand.server import public_url
from farhand.tls import read_certificate
from tests.harness.certificates import self_signed


def test_a_certificate_with_its_key_is_known_by_its_pin(tmp_path: Path) -> None:
    certificate, key, pin = self_signed(tmp_path)
    found = read_certificate(certificate, key)
    assert found is not None
    assert (found.certificate, found.key, found.pin) == (certificate, key, pin)
    assert read_certificate(None, None) is None


def test_what_is_no_certificate_with_its_key_is_refused_by_the_options_name(tmp_path: Path) -> None:
    certificate, key, _ = self_signed(tmp_path)
    _, other, _ = self_signed(tmp_path, "other")
    for given, words in (
        ((certificate, None), "--tls-cert and --tls-key belong together"),
        ((certificate, tmp_path / "nowhere"), "cannot be read"),
        ((key, key), "no certificate in PEM"),
        ((certificate, other), "is not the key of"),
    ):
        with pytest.raises(Usage, match=words):
            read_certificate(*given)


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ({}, "http://127.0.0.1:8420"),
        ({"host": "10.0.0.5"}, "http://10.0.0.5:8420"),
        ({"host": "::1", "base_path": "x"}, "http://[::1]:8420/x"),
        (
            {"public_host": "flows.example.org", "trusted_proxy": "127.0.0.1", "base_path": "farhand"},
            "https://flows.example.org/farhand",
        ),
        ({"host": "0.0.0.0", "public_host": "flows.example.org"}, "http://flows.example.org:8420"),
    ],
)
def test_other_machines_are_told_the_address_of_the_proxy_or_else_the_servers_own(
    flags: dict[str, str], url: str
) -> None:
    assert public_url(config.load(flags, environment={}), 8420, None) == url
