"""JSON text between programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farhand_worker import compact

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_it_is_what_the_standard_library_writes_and_reads(value: Any) -> None:
    text = compact.encoder()(value)
    assert text == json.dumps(value, separators=(",", ":"))
    assert compact.parsed(text) == value


@pytest.mark.parametrize("text", [" [1] ", "\n7", '{"a":1}\n'])
def test_what_others_wrote_is_read_with_what_is_around_it(text: str) -> None:
    assert compact.parsed(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", "[1] 2", "nothing", "{", "1,"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its words are those of the standard library
        compact.parsed(text)


def test_a_number_that_json_lacks_is_refused_where_it_must_not_be() -> None:
    assert compact.encoder()(float("inf")) == "Infinity"
    with pytest.raises(ValueError, match="JSON"):
        compact.encoder(allow_nan=False)([float("nan")])


def test_a_value_of_another_type_is_refused_and_the_next_one_is_written() -> None:
    dumps = compact.encoder()
    with pytest.raises(TypeError, match="set"):
        dumps({"a": [set[int]()]})
    assert dumps({"a": [1]}) == '{"a":[1]}'


def test_another_interpreter_uses_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    assert compact.encoder()({"a": [1, None]}) == '{"a":[1,null]}'
