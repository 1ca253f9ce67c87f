"""Several values of a parameter on the command line."""

from __future__ import annotations

import pytest

from farhand.cli.grid import combinations, values_of
from farhand.errors import InvalidParameters, Usage

SCHEMA = {
    "properties": {
        "lr": {"type": "number"},
        "seed": {"type": "integer"},
        "name": {"type": "string"},
        "layers": {"type": "array"},
    }
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1", ["1"]),
        ("0.1,0.01", ["0.1", "0.01"]),
        ("1..3", ["1", "2", "3"]),
        ("3..1", ["3", "2", "1"]),
        ("0..10..5", ["0", "5", "10"]),
        ("-1..1,7", ["-1", "0", "1", "7"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("", [""]),
        ("a..b", ["a..b"]),
    ],
)
def test_a_text_stands_for_several_values(text: str, values: list[str]) -> None:
    assert values_of(text) == values


def test_every_combination_is_made_the_last_parameter_fastest() -> None:
    made = combinations(SCHEMA, ["lr=0.1,1", "layers=[1,2],[3]"])
    assert made == [
        {"lr": 0.1, "layers": [1, 2]},
        {"lr": 0.1, "layers": [3]},
        {"lr": 1, "layers": [1, 2]},
        {"lr": 1, "layers": [3]},
    ]
    assert combinations(SCHEMA, []) == [{}]


def test_too_many_combinations_are_refused_with_their_number() -> None:
    with pytest.raises(Usage, match="1,000,000 runs"):
        combinations(SCHEMA, ["seed=1..1000", "lr=1..1000"])
    with pytest.raises(Usage, match="more than"):
        combinations(SCHEMA, ["seed=1..99999999999"])


def test_a_parameter_the_flow_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidParameters, match="depth"):
        combinations(SCHEMA, ["depth=1,2"])
