"""Every type that people use in signatures: its schema, what it takes, and what it says of the rest."""

from __future__ import annotations

import contextlib
import enum
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import pydantic
import pytest
from hypothesis import given, strategies

from farhand.errors import InvalidParameters
from farhand.sdk.parameters import Parameters, check, export

IDENTITY = UUID("123e4567-e89b-12d3-a456-426614174000")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list)
    parent: Point | None = None


class Options(TypedDict, total=False):
    deep: bool
    span: timedelta


class Pair(NamedTuple):
    left: int
    right: date = date(2024, 1, 1)


class Item(pydantic.BaseModel):
    name: str
    price: float
    parts: list[Item] = []

    @pydantic.field_validator("name")
    @classmethod
    def no_secrets(cls, value: str) -> str:
        if "hidden" in value:
            raise ValueError(f"{value} is not allowed")
        return value


class Rectangle:
    def __init__(self, width: int) -> None:
        self.width = width


Count = NewType("Count", int)


def parameters(annotation: Any) -> Parameters:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return Parameters(function, inspect.signature(function))


def taken(annotation: Any, value: Any) -> Any:
    """The converted value, which the schema, gone through JSON as on a server, takes as well."""
    found = parameters(annotation)
    schema = json.loads(json.dumps(found.schema()))
    try:
        as_json = json.loads(json.dumps({"value": value}))
    except TypeError:
        pass
    else:
        check(schema, as_json)
    return found.bind_params({"value": value}).arguments["value"]


def refused(annotation: Any, value: Any) -> str:
    """The message, which is the same where only the schema is known."""
    found = parameters(annotation)
    with pytest.raises(InvalidParameters) as caught:
        found.bind_params({"value": value})
    with pytest.raises(InvalidParameters) as there:
        check(json.loads(json.dumps(found.schema())), {"value": value})
    assert str(there.value) == str(caught.value)
    return str(caught.value)


TAKEN: list[tuple[Any, Any, Any]] = [
    (str, "x", "x"),
    (int, "3", 3),
    (int, 3.0, 3),
    (float, 3, 3.0),
    (bool, "yes", True),
    (date, "2024-01-31", date(2024, 1, 31)),
    (datetime, "2024-01-31T10:00:00", datetime(2024, 1, 31, 10)),
    (time, "10:30", time(10, 30)),
    (timedelta, "2h", timedelta(hours=2)),
    (Path, "/tmp/x", Path("/tmp/x")),
    (UUID, str(IDENTITY), IDENTITY),
    (Decimal, "1.10", Decimal("1.10")),
    (Decimal, 0.1, Decimal("0.1")),
    (int | None, None, None),
    (int | None, "4", 4),
    (int | str, "4", "4"),
    (int | str, 4, 4),
    (int | date, "2024-01-31", date(2024, 1, 31)),
    (float | int, 5, 5),
    (Literal["a", 1, None], "a", "a"),
    (Literal["a", 1, None], "1", 1),
    (Literal["a", 1, None], None, None),
    (Colour, "red", Colour.RED),
    (Colour, "RED", Colour.RED),
    (Colour, Colour.BLUE, Colour.BLUE),
    (Level, 2, Level.HIGH),
    (Level, "2", Level.HIGH),
    (list[int], ["1", 2], [1, 2]),
    (list, [1, "x"], [1, "x"]),
    (Sequence[date], ["2024-01-31"], [date(2024, 1, 31)]),
    (Sequence[int], range(3), range(3)),
    (dict[str, float], {"a": "1"}, {"a": 1.0}),
    (dict[int, str], {"1": "x"}, {1: "x"}),
    (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
    (tuple[int, str], ["1", "x"], (1, "x")),
    (tuple[int, ...], ["1", 2], (1, 2)),
    (tuple, [1], (1,)),
    (set[int], ["1", 1, 2], {1, 2}),
    (frozenset[str], ["a"], frozenset("a")),
    (Point, {"x": "1"}, Point(1)),
    (Point, {"x": 1, "parent": {"x": "2"}}, Point(1, parent=Point(2))),
    (Point, Point(7), Point(7)),
    (list[Point], [{"x": 1, "tags": ["a"]}], [Point(1, tags=["a"])]),
    (Options, {"span": "90s"}, {"span": timedelta(seconds=90)}),
    (Pair, {"left": "1"}, Pair(1)),
    (Item, {"name": "n", "price": "2"}, Item(name="n", price=2)),
    (list[Item], [{"name": "n", "price": 2, "parts": []}], [Item(name="n", price=2)]),
    (Item | None, None, None),
    (Annotated[int, "a count"], "3", 3),
    (Count, "3", 3),
    (Any, {"a": [1]}, {"a": [1]}),
    (Callable[[], None], "x", "x"),
]


@pytest.mark.parametrize(("annotation", "value", "meant"), TAKEN)
def test_a_value_becomes_what_the_annotation_says(annotation: Any, value: Any, meant: Any) -> None:
    found = taken(annotation, value)
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize(("annotation", "value", "meant"), TAKEN)
def test_what_is_exported_is_taken_back(annotation: Any, value: Any, meant: Any) -> None:
    if meant != range(3):
        assert taken(annotation, json.loads(json.dumps(export(meant)))) == meant


REFUSED: list[tuple[Any, Any, str]] = [
    (int, "many", "value: must be a whole number"),
    (int, 10**400 + 0.5 if False else "1.5", "value: must be a whole number"),
    (float, 10**400, "value: must be a number"),
    (timedelta, 1e300, "value: must be a duration: seconds, or text such as 90s or 2h"),
    (UUID, "x", "value: must be a UUID such as 123e4567-e89b-12d3-a456-426614174000"),
    (Decimal, "much", "value: must be a decimal number"),
    (int | date, "soon", "value: must be a whole number, or must be a day such as 2024-01-31"),
    (int | None, "x", "value: must be a whole number"),
    (Literal["a", 1], "b", "value: must be one of a, 1"),
    (Literal["a", 1], True, "value: must be one of a, 1"),
    (Colour, "green", "value: must be one of red, blue"),
    (list[int], [1, "x"], "value[1]: must be a whole number"),
    (list[int], "12", "value: must be a list"),
    (dict[str, list[int]], {"a": [1, None]}, "value.a[1]: must be a whole number"),
    (dict[int, int], {"x": 1}, "value, a key: must be a whole number"),
    (tuple[int, str], [1], "value: must be a list of 2 values"),
    (tuple[int, str], ["x", "y"], "value[0]: must be a whole number"),
    (Point, {"y": 1}, "value.x: is missing"),
    (Point, {"x": 1, "z": 1}, "value.z: there is no such field; there are: x, y, tags, parent"),
    (list[Point], [{"x": 1}, {"x": "one"}], "value[1].x: must be a whole number"),
    (Options, {"span": "long"}, "value.span: must be a duration: seconds, or text such as 90s or 2h"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), REFUSED)
def test_what_does_not_fit_is_named_by_field_and_index_here_and_on_a_server(
    annotation: Any, value: Any, message: str
) -> None:
    assert refused(annotation, value) == message


def test_a_model_in_a_list_that_refuses_is_named_by_index_and_field_and_its_value_is_not_told() -> None:
    """B091."""
    good = {"name": "n", "price": 1}
    for bad, place in (
        ({"name": "n", "price": "sold out"}, "value[1].price: input should be a valid number"),
        ({"name": "n"}, "value[1].price: field required"),
        ({"name": "hidden", "price": 1}, "value[1].name: Item refused it"),
        ({"name": "n", "price": 1, "parts": [{"name": "m"}]}, "value[1].parts[0].price: field required"),
    ):
        with pytest.raises(InvalidParameters) as caught:
            taken(list[Item], [good, bad])
        assert str(caught.value).startswith(place)
        assert "sold out" not in str(caught.value)
        assert "hidden" not in str(caught.value)


def test_a_class_of_the_users_own_is_constructed() -> None:
    assert taken(Rectangle, {"width": 3}).width == 3
    assert taken(Rectangle, 4).width == 4


def test_defaults_become_what_the_annotations_say_and_an_unfit_one_is_named() -> None:
    def function(
        item: Item = {"name": "n", "price": "1"},  # type: ignore[assignment]  # noqa: B006
        day: date = "2024-01-01",  # type: ignore[assignment]
        place: Path = "x",  # type: ignore[assignment]
        colour: Colour = "red",  # type: ignore[assignment]
    ) -> None: ...

    found = Parameters(function, inspect.signature(function))
    given_none = found.bind((), {}).arguments
    assert given_none == {
        "item": Item(name="n", price=1),
        "day": date(2024, 1, 1),
        "place": Path("x"),
        "colour": Colour.RED,
    }
    assert found.bind_params({}).arguments == given_none
    check(found.schema(), {})
    assert found.schema()["properties"]["item"]["default"] == {"name": "n", "price": 1.0, "parts": []}

    def broken(n: int = "x") -> None: ...  # type: ignore[assignment]

    with pytest.raises(InvalidParameters, match="n: must be a whole number"):
        Parameters(broken, inspect.signature(broken)).schema()


def test_schemas_say_what_a_form_needs() -> None:
    def of(annotation: Any) -> Any:
        return parameters(annotation).schema()["properties"]["value"]

    assert of(Colour) == {"enum": ["red", "blue"], "title": "Colour", "x-names": ["RED", "BLUE"]}
    assert of(int | None) == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert of(tuple[int, str])["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert of(set[int])["uniqueItems"] is True
    assert of(Point)["required"] == ["x"]
    assert of(Point)["properties"]["y"] == {"type": "number"}
    assert of(Item)["properties"]["price"]["type"] == "number"
    assert "$ref" not in json.dumps(of(list[Item]))


@given(
    strategies.sampled_from([annotation for annotation, _, _ in TAKEN if annotation is not Rectangle]),
    strategies.recursive(
        strategies.none()
        | strategies.booleans()
        | strategies.integers()
        | strategies.floats()
        | strategies.text(),
        lambda inner: (
            strategies.lists(inner, max_size=3)
            | strategies.dictionaries(strategies.text(), inner, max_size=3)
        ),
        max_leaves=6,
    ),
)
def test_any_json_is_taken_or_refused_and_nothing_else(annotation: Any, value: Any) -> None:
    found = parameters(annotation)
    with contextlib.suppress(InvalidParameters):
        check(found.schema(), {"value": value})
    with contextlib.suppress(InvalidParameters):
        found.bind_params({"value": value})


def test_pydantic_is_not_loaded_by_us() -> None:
    import subprocess

    code = (
        "import sys\nfrom dataclasses import dataclass\nfrom uuid import UUID\nfrom farhand import flow\n"
        "@flow\ndef main(a: int = 1, b: list[int] = (), c: UUID = None): return a\n"
        "main()\nmain.parameters.schema()\nsys.exit('pydantic' in sys.modules)"
    )
    environment = {"FARHAND_RECORD": "0"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=30).returncode == 0
