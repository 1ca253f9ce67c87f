"""Parameters on the command line are read as the schema says."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.cli.params import read_params, split
from farhand.errors import InvalidParameters, Usage

SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "words": {"type": "array", "items": {"type": "string"}},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "span": {"type": ["number", "string"]},
        "colour": {"enum": ["red", "blue"]},
        "free": {},
    }
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=42", "42"),
        ("text=a=b", "a=b"),
        ("text=", ""),
        ("text=null", "null"),
        ("number=42", 42),
        ("number=many", "many"),
        ("flag=true", True),
        ("flag=yes", "yes"),
        ('words=["a","b"]', ["a", "b"]),
        ("maybe=null", None),
        ("maybe=1", "1"),
        ("span=2h", "2h"),
        ("colour=red", "red"),
        ('free={"a": 1}', {"a": 1}),
        ("free=plain", "plain"),
    ],
)
def test_a_word_becomes_a_value(word: str, value: Any) -> None:
    assert read_params(SCHEMA, [word]) == {word.partition("=")[0]: value}


@pytest.mark.parametrize("given", [["x"], ["=1"], ["a=1", "a=2"]])
def test_a_word_that_is_none_or_twice_is_refused(given: list[str]) -> None:
    with pytest.raises(Usage):
        split(given)


def test_a_name_that_the_flow_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(InvalidParameters, match=r"depth: .*text, number"):
        read_params(SCHEMA, ["depth=1"])
    assert read_params({"additionalProperties": True}, ["depth=1"]) == {"depth": 1}
