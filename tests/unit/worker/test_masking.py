"""Secrets are found in every form in which a log may hold them."""

from __future__ import annotations

import base64
import json
import pickle
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farhand_worker.masking import MASK, Masker

SECRETS = st.text(st.characters(codec="utf-8"), min_size=6, max_size=40)


def masker(*values: str) -> Masker:
    made = Masker()
    for value in values:
        made.add(value)
    return made


@given(secret=SECRETS, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_no_alignment_hides_a_secret_in_base64(secret: str, before: bytes, after: bytes) -> None:
    content = before + secret.encode() + after
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert masker(secret).finds(encode(content).decode())


@given(secret=SECRETS)
def test_a_secret_is_found_however_it_is_escaped(secret: str) -> None:
    mask = masker(secret)
    for text in (
        secret,
        json.dumps({"k": secret}),
        json.dumps(json.dumps([secret])),
        json.dumps([secret], ensure_ascii=False),
        repr([secret]),
        quote_plus(secret),
        secret.encode().hex(),
        base64.b64encode(pickle.dumps({"token": secret})).decode(),
    ):
        assert mask.finds(text), text
        assert not mask.finds(mask(text))


def test_the_rest_of_the_text_stays_as_it_is() -> None:
    assert masker("hunter22")("a hunter22 b hunter2 c") == f"a {MASK} b hunter2 c"


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert masker("hunter", "hunter22")("hunter22 hunter") == f"{MASK} {MASK}"


def test_every_line_of_a_key_is_masked() -> None:
    mask = masker("-----BEGIN-----\nMIIEvQIBADANBg\n-----END-----\n")
    assert mask("MIIEvQIBADANBg") == MASK


def test_a_value_of_a_few_characters_is_refused_since_it_would_hide_the_log() -> None:
    mask = Masker()
    assert not mask.add("abc")
    assert mask("abcabc") == "abcabc"


@pytest.mark.parametrize(("text", "size"), [("see hunt", 4), ("see hunter2", 7), ("see", 0), ("h", 1)])
def test_the_beginning_of_a_secret_is_held_back_before_a_cut(text: str, size: int) -> None:
    assert masker("hunter22").unfinished(text) == size
