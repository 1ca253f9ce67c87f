"""Credentials: who minted them, what they say, and what is wrong with the others."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from farhand.engine import tokens as tokens_module
from farhand.engine.tokens import ADMIN, WORKER, YEAR_S, Identity, Tokens
from farhand.errors import NotFound, Unauthorized, Usage
from farhand.model import LOCAL_WORKER
from farhand.store import Store
from tests.unit.engine.records import Clock

pytestmark = pytest.mark.anyio


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
async def tokens(store: Store, home: Path) -> Tokens:
    return Tokens(store, home, {})


async def test_a_worker_token_says_name_and_labels_and_is_listed(tokens: Tokens) -> None:
    text, token = await tokens.create("gpu-box", WORKER, ("gpu", "zone=eu"), YEAR_S)
    assert await tokens.verify(text) == Identity(WORKER, "gpu-box", ("gpu", "zone=eu"), token.jti)
    assert await tokens.list() == [token]
    assert token.expires_at == pytest.approx(token.issued_at + YEAR_S)
    assert jwt.get_unverified_header(text)["alg"] == "EdDSA"


async def test_the_text_of_a_token_is_kept_nowhere(tokens: Tokens, tmp_path: Path) -> None:
    text, _ = await tokens.create("box", WORKER, (), YEAR_S)
    signature = text.rpartition(".")[2].encode()
    assert not any(signature in content for content in contents(tmp_path))


@pytest.mark.parametrize(
    ("name", "role", "labels", "expires_s", "words"),
    [
        ("box", "admin", (), 1.0, "the role is worker"),
        ("server", "worker", (), 1.0, "reserved"),
        ("any", "worker", (), 1.0, "reserved"),
        ("worker", "worker", (), 1.0, "reserved"),
        ("Box", "worker", (), 1.0, "'Box' is not a name"),
        ("", "worker", (), 1.0, "is not a name"),
        ("a=b", "worker", (), 1.0, "'a=b' is not a name"),
        ("x" * 64, "worker", (), 1.0, "is not a name"),
        ("box\n", "worker", (), 1.0, "is not a name"),
        ("box", "worker", ("two words",), 1.0, "'two words' is not a name"),
        ("box", "worker", (), 0.0, "valid for some time"),
        ("box", "worker", (), -1.0, "valid for some time"),
    ],
)
async def test_what_cannot_be_minted_is_refused_saying_why(
    tokens: Tokens, name: str, role: str, labels: tuple[str, ...], expires_s: float, words: str
) -> None:
    with pytest.raises(Usage, match=words):
        await tokens.create(name, role, labels, expires_s)
    assert await tokens.list() == []


@pytest.mark.fault("1.12")
async def test_an_expired_token_is_refused(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "time", Clock(epoch=time.time() - 7200.0))
    text, _ = await tokens.create("box", WORKER, (), 3600.0)
    with pytest.raises(Unauthorized, match="expired"):
        await tokens.verify(text)


@pytest.mark.fault("1.12")
@pytest.mark.parametrize("text", ["", "word", "a.b.c", "é", "eyJhbGciOiJub25lIn0.e30."])
async def test_what_is_no_token_is_refused(tokens: Tokens, text: str) -> None:
    with pytest.raises(Unauthorized, match="not one of this server's"):
        await tokens.verify(text)


async def test_a_changed_token_is_refused(tokens: Tokens) -> None:
    text, _ = await tokens.create("box", WORKER, (), YEAR_S)
    head, body, signature = text.split(".")
    other, _ = await tokens.create("box", WORKER, ("gpu",), YEAR_S)
    with pytest.raises(Unauthorized):
        await tokens.verify(f"{head}.{other.split('.')[1]}.{signature}")
    with pytest.raises(Unauthorized):
        await tokens.verify(f"{head}.{body}.")


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.rglob("*") if path.is_file()]


def claims(**changes: Any) -> dict[str, Any]:
    return {"jti": "1", "sub": "box", "labels": [], "exp": time.time() + 60, **changes}


async def test_a_token_of_another_key_or_algorithm_is_refused(tokens: Tokens) -> None:
    _, token = await tokens.create("box", WORKER, (), YEAR_S)
    foreign = jwt.encode(claims(jti=token.jti), Ed25519PrivateKey.generate(), algorithm="EdDSA")
    unsigned = jwt.encode(claims(jti=token.jti), None, algorithm="none")
    symmetric = jwt.encode(claims(jti=token.jti), "k" * 64, algorithm="HS256")
    for text in (foreign, unsigned, symmetric):
        with pytest.raises(Unauthorized, match="not one of this server's"):
            await tokens.verify(text)


@pytest.mark.parametrize("missing", ["exp", "jti", "sub"])
async def test_a_token_without_a_needed_claim_is_refused(tokens: Tokens, missing: str) -> None:
    body = claims()
    del body[missing]
    with pytest.raises(Unauthorized):
        await tokens.verify(jwt.encode(body, tokens._key, algorithm="EdDSA"))


async def test_a_token_the_store_does_not_know_is_refused(tokens: Tokens) -> None:
    text = jwt.encode(claims(jti="elsewhere"), tokens._key, algorithm="EdDSA")
    with pytest.raises(Unauthorized, match="not known here"):
        await tokens.verify(text)


async def test_a_revoked_token_is_refused_from_then_on(tokens: Tokens) -> None:
    text, token = await tokens.create("box", WORKER, (), YEAR_S)
    assert await tokens.revoke(token.jti)
    assert not await tokens.revoke(token.jti)
    with pytest.raises(Unauthorized, match="revoked"):
        await tokens.verify(text)
    (listed,) = await tokens.list()
    assert listed.revoked_at is not None


async def test_revoking_what_does_not_exist_says_so(tokens: Tokens) -> None:
    with pytest.raises(NotFound, match="there is no token nope"):
        await tokens.revoke("nope")


async def test_tokens_outlive_a_restart(tokens: Tokens, store: Store, home: Path) -> None:
    text, token = await tokens.create("box", WORKER, (), YEAR_S)
    again = Tokens(store, home, {})
    assert (await again.verify(text)).jti == token.jti


async def test_the_local_worker_has_a_token_of_its_own_that_is_not_listed(
    tokens: Tokens, store: Store, home: Path
) -> None:
    first = await tokens.local()
    assert (await tokens.verify(first)).name == LOCAL_WORKER
    again = Tokens(store, home, {})
    assert (await again.verify(await again.local())).name == LOCAL_WORKER
    assert (await again.verify(first)).name == LOCAL_WORKER
    assert await tokens.list() == []


# ---------------------------------------------------------------- the admin's secret


async def test_the_first_start_makes_an_admin_token_and_later_ones_keep_it(
    tokens: Tokens, store: Store, home: Path
) -> None:
    text = (home / "admin-token").read_text().strip()
    assert len(text) >= 32
    assert await tokens.verify(text) == Identity(ADMIN, ADMIN)
    assert await Tokens(store, home, {}).verify(text) == Identity(ADMIN, ADMIN)


async def test_the_secrets_are_readable_by_their_owner_alone(tokens: Tokens, home: Path) -> None:
    for name in ("admin-token", "token-key.pem"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    assert set(os.listdir(home)) == {"admin-token", "token-key.pem"}


async def test_the_environment_may_give_the_admin_token_or_a_file_with_it(
    store: Store, home: Path, tmp_path: Path
) -> None:
    given = Tokens(store, home, {"FARHAND_ADMIN_TOKEN": " from-the-environment "})
    assert (await given.verify("from-the-environment")).role == ADMIN
    assert not (home / "admin-token").exists()
    file = tmp_path / "secret"
    file.write_text("from-a-file\n")
    given = Tokens(store, home, {"FARHAND_ADMIN_TOKEN_FILE": str(file)})
    assert (await given.verify("from-a-file")).role == ADMIN


async def test_an_admin_token_that_cannot_be_read_or_is_empty_stops_the_start(
    store: Store, home: Path, tmp_path: Path
) -> None:
    with pytest.raises(Usage, match="cannot be read from"):
        Tokens(store, home, {"FARHAND_ADMIN_TOKEN_FILE": str(tmp_path / "gone")})
    (home / "admin-token").write_text("\n")
    with pytest.raises(Usage, match="is empty"):
        Tokens(store, home, {})


@pytest.mark.parametrize("content", [b"", b"not a key"])
async def test_a_signing_key_that_is_none_stops_the_start_saying_what_to_do(
    store: Store, home: Path, content: bytes
) -> None:
    (home / "token-key.pem").write_bytes(content)
    with pytest.raises(Usage, match="move it away and a new one is made"):
        Tokens(store, home, {})
