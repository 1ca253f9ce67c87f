"""Joining by an invitation: the pinned server alone is told the code, and what it gives is kept."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from farhand_worker.invitation import NoExchange, NotInvited, default_directory, kept
from farhand_worker.joining import accept
from farhand_worker.pins import BadPin, pin_of
from farhand_worker.trust import NotPinned, Trust

from .conftest import TlsServer

OTHER = "sha256:" + "0" * 64


def test_a_code_is_exchanged_once_and_the_token_kept_for_this_user_alone(
    tls_server: TlsServer, tmp_path: Path
) -> None:
    address, directory = tls_server.address, tmp_path / "config" / "farhand"
    assert kept(address, directory) is None
    bought = accept(address, "code", tls_server.pin, directory)
    assert (bought.token, bought.name, bought.pin) == ("t.o.k", "box", tls_server.pin)
    assert tls_server.asked == [("/base/api/v1/workers/join", {"code": "code"})]
    assert accept(address, "code", tls_server.pin, directory) == bought == kept(address, directory)
    assert len(tls_server.asked) == 1
    (file,) = directory.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert accept(address, "another", tls_server.pin, directory).bought_with != bought.bought_with
    assert len(tls_server.asked) == 2


@pytest.mark.parametrize(
    ("answer", "refusal", "words"),
    [
        ((403, {"detail": "the invitation of box has been used"}), NotInvited, "has been used"),
        ((503, {}), NoExchange, "answered 503"),
        ((200, ["of another kind"]), NoExchange, "is not a farhand server"),
    ],
)
def test_an_exchange_that_fails_says_why_and_keeps_what_was_there(
    tls_server: TlsServer,
    tmp_path: Path,
    answer: tuple[int, object],
    refusal: type[Exception],
    words: str,
) -> None:
    earlier = accept(tls_server.address, "earlier", tls_server.pin, tmp_path / "kept")
    tls_server.answer = answer
    with pytest.raises(refusal, match=words):
        accept(tls_server.address, "code", tls_server.pin, tmp_path / "kept")
    assert kept(tls_server.address, tmp_path / "kept") == earlier


def test_a_server_with_another_certificate_is_told_nothing(tls_server: TlsServer, tmp_path: Path) -> None:
    for pin in (OTHER, None):
        with pytest.raises(NoExchange, match="certificate"):
            accept(tls_server.address, "code", pin, tmp_path / "kept")
    assert tls_server.asked == []


def test_a_pin_is_read_as_openssl_prints_it_and_nothing_else_is_one(tls_server: TlsServer) -> None:
    digits = tls_server.pin.partition(":")[2]
    spaced = ":".join(digits[i : i + 2] for i in range(0, 64, 2)).upper()
    assert pin_of(f"SHA256:{spaced}") == tls_server.pin
    for text in ("", "sha256:12", f"sha1:{digits}", digits):
        with pytest.raises(BadPin, match="no fingerprint"):
            pin_of(text)


def test_a_pinned_context_verifies_and_one_of_another_server_fails(tls_server: TlsServer) -> None:
    context = Trust(tls_server.pin).context(tls_server.address)
    assert context.verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(NotPinned, match="is not the pinned one"):
        Trust(OTHER).context(tls_server.address)


def test_what_is_kept_and_unreadable_is_no_credential(tls_server: TlsServer, tmp_path: Path) -> None:
    accept(tls_server.address, "code", tls_server.pin, tmp_path / "kept")
    (file,) = (tmp_path / "kept").iterdir()
    file.write_text("{}")
    assert kept(tls_server.address, tmp_path / "kept") is None


def test_credentials_lie_where_programs_of_this_user_keep_their_settings(tmp_path: Path) -> None:
    assert default_directory({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "farhand"
    assert default_directory({"XDG_CONFIG_HOME": "relative"}) == Path.home() / ".config" / "farhand"
