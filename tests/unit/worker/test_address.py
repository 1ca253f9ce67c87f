"""The server's address as people write it."""

from __future__ import annotations

import pytest

from farhand_worker.address import BadAddress, parse


@pytest.mark.parametrize(
    ("url", "attach"),
    [
        ("http://localhost:8420", "ws://localhost:8420/api/v1/workers/attach"),
        ("ws://127.0.0.1:8420/", "ws://127.0.0.1:8420/api/v1/workers/attach"),
        ("https://f.example", "wss://f.example:443/api/v1/workers/attach"),
        ("wss://f.example/farhand", "wss://f.example:443/farhand/api/v1/workers/attach"),
        ("https://f.example/b/api/v1/workers/attach", "wss://f.example:443/b/api/v1/workers/attach"),
        ("http://[::1]:9\n", "ws://[::1]:9/api/v1/workers/attach"),
    ],
)
def test_any_of_the_usual_forms_is_understood(url: str, attach: str) -> None:
    assert parse(url).attach_url == attach


@pytest.mark.parametrize("url", ["http://10.0.0.1", "ws://f.example:80", "http://localhost.example"])
def test_an_open_link_off_this_machine_needs_a_word(url: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse(url)
    assert str(caught.value) == (
        f"{url} is not encrypted: use wss:// (https:// for --artifact-url), "
        "or --insecure on a network you trust"
    )
    assert not parse(url, insecure=True).secure


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("f.example:80", "use https://HOST:PORT"),
        ("ftp://f.example", "use https://HOST:PORT"),
        ("https://f.example:x", "the port is not a number"),
        ("https://u:p@f.example", "must hold no credentials"),
        ("https://f.example/?token=x", "must hold no credentials"),
    ],
)
def test_what_is_no_address_is_said(url: str, sentence: str) -> None:
    with pytest.raises(BadAddress, match=sentence):
        parse(url)


def test_a_refusal_does_not_repeat_the_password() -> None:
    with pytest.raises(BadAddress) as caught:
        parse("https://u:hunter2@f.example")
    assert "hunter2" not in str(caught.value)
