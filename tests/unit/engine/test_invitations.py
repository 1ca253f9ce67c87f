"""Invitations: a code that buys a worker's token, once, and is kept nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from farhand.engine import invitations as invitations_module
from farhand.engine.invitations import Invitations
from farhand.engine.roles import WORKER, Identity
from farhand.engine.tokens import Tokens
from farhand.errors import NotInvited, Usage
from farhand.store import Store
from tests.unit.engine.records import Clock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tokens(store: Store, tmp_path: Path) -> Tokens:
    (tmp_path / "home").mkdir()
    return Tokens(store, tmp_path / "home", {})


@pytest.fixture
async def invitations(store: Store, tokens: Tokens) -> Invitations:
    return Invitations(store, tokens)


async def test_a_code_buys_a_token_of_the_name_and_labels_that_were_invited(
    invitations: Invitations, tokens: Tokens
) -> None:
    code, invitation = await invitations.create("box", ("gpu",))
    assert await invitations.check(code) == invitation
    text, token = await invitations.redeem(code, "10.0.0.1")
    assert await tokens.verify(text) == Identity(WORKER, "box", ("gpu",), token.jti)
    assert code not in repr(invitation)
    with pytest.raises(NotInvited, match="the invitation of box has been used"):
        await invitations.redeem(code, "10.0.0.2")
    with pytest.raises(NotInvited, match="the invitation of box has been used"):
        await invitations.check(code)
    assert [listed.jti for listed in await tokens.list()] == [token.jti]


async def test_a_code_that_was_made_up_or_is_too_old_buys_nothing(
    invitations: Invitations, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotInvited, match="No invitation has this code"):
        await invitations.redeem("made-up", "")
    code, invitation = await invitations.create("box", (), valid_s=5.0)
    monkeypatch.setattr(invitations_module, "time", Clock(epoch=invitation.expires_at))
    with pytest.raises(NotInvited, match="has expired"):
        await invitations.redeem(code, "")


@pytest.mark.parametrize(
    ("name", "labels", "valid_s", "words"),
    [
        ("server", (), 60.0, "reserved"),
        ("box", ("A b",), 60.0, "is not a name"),
        ("box", (), 0.0, "waits for"),
    ],
)
async def test_nobody_is_invited_who_could_have_no_token(
    invitations: Invitations, name: str, labels: tuple[str, ...], valid_s: float, words: str
) -> None:
    with pytest.raises(Usage, match=words):
        await invitations.create(name, labels, valid_s=valid_s)
