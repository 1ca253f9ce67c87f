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
from farhand.engine.roles import ADMIN, WORKER, Identity
from farhand.engine.tokens import YEAR_S, Tokens
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
    assert await tokens.list() == [token]
    assert await tokens.verify(text) == Identity(WORKER, "gpu-box", ("gpu", "zone=eu"), token.jti)
    assert token.expires_at == pytest.approx(token.issued_at + YEAR_S)
    assert jwt.get_unverified_header(text)["alg"] == "EdDSA"


async def test_the_text_of_a_token_is_kept_nowhere(tokens: Tokens, tmp_path: Path) -> None:
    text, _ = await tokens.create("box", WORKER, (), YEAR_S)
    signature = text.rpartition(".")[2].encode()
    assert not any(signature in content for content in contents(tmp_path))


@pytest.mark.parametrize(
    ("name", "role", "labels", "expires_s", "words"),
    [
        ("box", "root", (), 1.0, "the roles are admin, operator, viewer, worker"),
        ("me", "viewer", ("gpu",), 1.0, "a token of role viewer has none"),
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
    clock = Clock()
    monkeypatch.setattr(tokens_module, "time", clock)
    text, _ = await tokens.create("box", WORKER, (), 3600.0)
    clock.now += 3600.0
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


@pytest.mark.parametrize("role", ["admin", "operator", "viewer"])
async def test_people_have_tokens_of_their_roles(tokens: Tokens, role: str) -> None:
    text, token = await tokens.create("anna", role, (), YEAR_S)
    assert await tokens.verify(text) == Identity(role, "anna", (), token.jti)


async def test_revoking_ends_what_goes_on_under_the_token_and_nothing_else(tokens: Tokens) -> None:
    one, token = await tokens.create("anna", "viewer", (), YEAR_S)
    two, _ = await tokens.create("berta", "viewer", (), YEAR_S)
    anna, berta = await tokens.verify(one), await tokens.verify(two)
    with tokens.watch(anna) as ended, tokens.watch(berta) as standing:
        await tokens.revoke(token.jti)
        assert ended.is_set()
        assert not standing.is_set()
    with tokens.watch(anna) as late:
        assert late.is_set()
    assert await tokens.confirm(berta) == berta
    with pytest.raises(Unauthorized, match="revoked"):
        await tokens.confirm(anna)


async def test_a_new_key_ends_every_token_but_the_local_workers(
    tokens: Tokens, store: Store, home: Path
) -> None:
    text, _ = await tokens.create("anna", "admin", (), YEAR_S)
    local, before = await tokens.local(), tokens.generation
    who = await tokens.verify(text)
    with tokens.watch(who) as ended, tokens.watch(await tokens.verify(local)) as kept:
        assert await tokens.rotate_key() == 1
        assert ended.is_set()
        assert not kept.is_set()
    assert tokens.generation != before
    for now in (tokens, Tokens(store, home, {})):
        with pytest.raises(Unauthorized):
            await now.verify(text)
        assert (await now.verify(local)).name == LOCAL_WORKER
        fresh, _ = await now.create("anna", "admin", (), YEAR_S)
        assert (await now.verify(fresh)).role == "admin"
    (listed, *_) = await tokens.list()
    assert listed.revoked_at is not None


async def test_a_token_signed_by_the_general_key_is_not_the_local_workers(
    tokens: Tokens, store: Store
) -> None:
    await tokens.local()
    jti = f"local-{store.meta.incarnation()}"
    text = jwt.encode(claims(jti=jti, sub="server"), tokens._key, algorithm="EdDSA")
    with pytest.raises(Unauthorized, match="not one of this server's"):
        await tokens.verify(text)


async def test_a_use_is_noted_with_its_address_once_a_minute(
    tokens: Tokens, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(epoch=time.time())
    monkeypatch.setattr(tokens_module, "time", clock)
    text, token = await tokens.create("anna", "viewer", (), YEAR_S)

    async def used() -> tuple[float | None, str]:
        found = await store.tokens.get(token.jti)
        assert found is not None
        return found.last_used_at, found.address

    assert await used() == (None, "")
    await tokens.verify(text, "10.0.0.1")
    first = await used()
    assert first == (clock.time(), "10.0.0.1")
    clock.now += 59
    await tokens.verify(text, "10.0.0.2")
    assert await used() == first
    clock.now += 2
    await tokens.verify(text, "10.0.0.2")
    assert await used() == (clock.time(), "10.0.0.2")


async def test_a_token_that_was_seen_before_still_expires(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(epoch=time.time())
    monkeypatch.setattr(tokens_module, "time", clock)
    text, _ = await tokens.create("anna", "viewer", (), 30.0)
    await tokens.verify(text)
    clock.now += 31
    with pytest.raises(Unauthorized, match="expired"):
        await tokens.verify(text)


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
    names = {"admin-token", "token-key.pem", "local-key.pem"}
    for name in names:
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    assert set(os.listdir(home)) == names


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


@pytest.mark.fault("3.20")
async def test_a_session_that_began_in_time_outlives_its_token_but_not_its_revocation(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(tokens_module, "time", clock)
    text, token = await tokens.create("box", WORKER, (), 3600.0)
    session = f"i1 {tokens.session_key('i1', token.jti)}"
    clock.now += 7200.0
    assert (await tokens.verify(text, "", session)).name == "box"
    for made_up in ("", "i1", "i1 0123", f"i2 {tokens.session_key('i1', token.jti)}"):
        with pytest.raises(Unauthorized, match="expired"):
            await tokens.verify(text, "", made_up)
    await tokens.revoke(token.jti)
    with pytest.raises(Unauthorized, match="revoked"):
        await tokens.verify(text, "", session)


async def test_a_person_has_no_session_that_outlives_a_token(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(tokens_module, "time", clock)
    text, token = await tokens.create("anna", "admin", (), 3600.0)
    clock.now += 7200.0
    with pytest.raises(Unauthorized, match="expired"):
        await tokens.verify(text, "", f"i1 {tokens.session_key('i1', token.jti)}")
