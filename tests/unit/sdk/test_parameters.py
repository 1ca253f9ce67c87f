"""Parameters: one set of rules for scripts, engines and the server."""

from __future__ import annotations

import datetime
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional  # noqa: UP035

import pytest

from farhand.errors import InvalidParameters, NotSupported
from farhand.sdk.parameters import Parameters, check


@dataclass
class Model:
    depth: int


def every(
    n: int,
    rate: float = 0.5,
    name: str = "x",
    on: bool = False,
    day: datetime.date = "2024-01-01",  # type: ignore[assignment]
    at: Optional[datetime.datetime] = None,  # noqa: UP045
    wait: datetime.timedelta = 90,  # type: ignore[assignment]
    where: Path = "/tmp",  # type: ignore[assignment]
    parts: List[int] = (),  # type: ignore[assignment]  # noqa: UP006
    more: Dict[str, float] = None,  # type: ignore[assignment]  # noqa: UP006, RUF013
    own: Model = None,  # type: ignore[assignment]
    free: Any = None,
    bare=1,
) -> None: ...


def of(function: Callable[..., Any]) -> Parameters:
    return Parameters(function, inspect.signature(function))


def given(**params: Any) -> dict[str, Any]:
    return of(every).bind_params(params).arguments


def test_values_become_what_the_annotations_say() -> None:
    found = given(
        n="3",
        rate=1,
        on="true",
        at="2024-05-01T10:00:00Z",
        wait="2h",
        parts=["1", 2],
        more={"a": 1},
        own={"depth": 2},
    )
    assert found["n"] == 3
    assert type(found["rate"]) is float
    assert found["on"] is True
    assert found["at"] == datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC)
    assert found["wait"] == datetime.timedelta(hours=2)
    assert found["parts"] == [1, 2]
    assert found["more"] == {"a": 1.0}
    assert found["own"] == Model(2)


def test_defaults_are_converted_as_well() -> None:
    """B089."""
    found = given(n=1)
    assert found["day"] == datetime.date(2024, 1, 1)
    assert found["wait"] == datetime.timedelta(seconds=90)
    assert found["where"] == Path("/tmp")
    assert found["more"] is None


WRONG = [
    ({"n": "sevent33n"}, "n"),
    ({"n": True}, "n"),
    ({"n": 1.5}, "n"),
    ({"n": 1, "rate": "fast"}, "rate"),
    ({"n": 1, "name": 5}, "name"),
    ({"n": 1, "on": "perhaps"}, "on"),
    ({"n": 1, "day": "tomorrow"}, "day"),
    ({"n": 1, "at": 12}, "at"),
    ({"n": 1, "wait": "long"}, "wait"),
    ({"n": 1, "parts": [1, 2, "s3cret"]}, "parts[2]"),
    ({"n": 1, "parts": "12"}, "parts"),
    ({"n": 1, "more": {"a": "s3cret"}}, "more.a"),
    ({"n": 1, "more": []}, "more"),
    ({"n": None}, "n"),
    ({}, "n"),
    ({"n": 1, "m": 2}, "m"),
]


@pytest.mark.parametrize(("params", "field"), WRONG)
def test_signature_and_schema_refuse_the_same_and_name_the_field_without_its_value(
    params: dict[str, Any], field: str
) -> None:
    parameters = of(every)
    for refuse in (lambda: parameters.bind_params(params), lambda: check(parameters.schema(), params)):
        with pytest.raises(InvalidParameters) as refusal:
            refuse()
        assert refusal.value.details["field"] == field
        assert str(refusal.value).startswith(f"{field}:")
        assert "s3cret" not in str(refusal.value)
        assert "sevent33n" not in str(refusal.value)


def test_what_the_signature_takes_the_schema_takes() -> None:
    schema = of(every).schema()
    for params in (
        {"n": "3"},
        {"n": 3.0, "at": None, "more": None, "wait": 5, "parts": ["1"], "free": {"x": [1]}},
    ):
        check(schema, params)


def test_the_schema_says_what_is_required_and_what_is_the_default() -> None:
    schema = of(every).schema()
    assert schema["required"] == ["n"]
    assert schema["properties"]["rate"] == {"type": "number", "default": 0.5}
    assert schema["properties"]["day"]["format"] == "date"
    assert schema["properties"]["parts"]["items"] == {"type": "integer"}
    assert schema["additionalProperties"] is False


def test_additional_names_are_taken_by_keyword_parameters_alone() -> None:
    def open_ended(a: int, **more: int) -> None: ...

    bound = of(open_ended).bind_params({"a": 1, "b": "2"})
    assert bound.arguments["more"] == {"b": 2}
    check(of(open_ended).schema(), {"a": 1, "b": 2})


def test_positional_only_parameters_work_by_name() -> None:
    def only(a: int, /, b: int) -> None: ...

    assert of(only).bind_params({"a": 1, "b": 2}).args == (1, 2)


def test_nameless_parameters_are_not_supported() -> None:
    def many(*values: int) -> None: ...

    with pytest.raises(NotSupported, match="values"):
        of(many)


def test_a_class_of_the_users_own_that_refuses_is_an_invalid_parameter() -> None:
    with pytest.raises(InvalidParameters, match=r"own\.depth: is missing"):
        given(n=1, own={"height": "s3cret"})
    model = Model(1)
    assert given(n=1, own=model)["own"] is model
