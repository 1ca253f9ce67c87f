"""The form of a flow, out of its schema and back."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.errors import InvalidParameters
from farhand.web.pages import forms

SHAPES: dict[str, Any] = {
    "text": {"type": "string", "default": "a"},
    "number": {"type": "number"},
    "whole": {"type": "integer", "default": 3},
    "yes": {"type": "boolean", "default": False},
    "choice": {"enum": ["adam", "sgd"], "default": "adam"},
    "list": {"type": "array", "items": {"type": "string"}, "default": []},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    "day": {"type": "string", "format": "date"},
    "any": {},
}
SCHEMA = {"type": "object", "properties": SHAPES, "required": ["number", "day"]}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "7", "7"),
        ("text", "null", "null"),
        ("number", "0.5", 0.5),
        ("number", "x", "x"),  # it is for the check to say that this is no number
        ("whole", "3", 3),
        ("yes", "true", True),
        ("choice", "sgd", "sgd"),
        ("list", '["a", "b"]', ["a", "b"]),
        ("maybe", "null", None),
        ("maybe", "some", "some"),
        ("any", '{"a": 1}', {"a": 1}),
        ("unknown", "x", "x"),
    ],
)
def test_a_text_is_read_as_the_schema_says(name: str, text: str, value: Any) -> None:
    filled = forms.filled_in({f"p.{name}": [text], "key": ["k"]})
    assert forms.params_of(SCHEMA, filled) == {name: value}


def test_a_field_left_empty_is_not_given() -> None:
    assert forms.filled_in({"p.text": [""], "p.list": ["  "], "p.whole": ["1"]}) == {"whole": "1"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("text", "text"),
        ("whole", "whole number"),
        ("yes", "yes or no"),
        ("choice", "one of adam, sgd"),
        ("maybe", "text or null"),
        ("day", "date"),
        ("list", "list, as JSON"),
        ("any", "any JSON"),
    ],
)
def test_a_field_says_what_it_takes(name: str, says: str) -> None:
    assert forms.describe(SHAPES[name]) == says


def test_a_field_knows_its_default_its_choices_and_whether_it_is_needed() -> None:
    of = {field.name: field for field in forms.fields(SCHEMA)}
    assert (of["text"].default, of["whole"].default, of["maybe"].default) == ("a", "3", "null")
    assert (of["yes"].choices, of["choice"].choices) == (("true", "false"), ("adam", "sgd"))
    assert [name for name, field in of.items() if field.required] == ["number", "day"]
    assert [name for name, field in of.items() if field.long] == ["list"]


@pytest.mark.parametrize(
    ("error", "at"),
    [
        (InvalidParameters("whole: must be a whole number", field="whole"), "whole"),
        (InvalidParameters("list[1]: must be text"), "list"),
        (InvalidParameters("the parameters are odd"), ""),
    ],
)
def test_an_error_stands_at_its_field(error: InvalidParameters, at: str) -> None:
    wrong = [field.name for field in forms.fields(SCHEMA, {}, error) if field.error]
    assert wrong == [at] * bool(at)


def test_what_a_run_was_given_fills_the_form_and_comes_out_of_it_again() -> None:
    params = {"text": "b", "number": 1.5, "yes": True, "list": ["a"], "maybe": None, "gone": 1}
    filled = forms.filled_with(SCHEMA, params)
    params.pop("gone")
    assert forms.params_of(SCHEMA, filled) == params
