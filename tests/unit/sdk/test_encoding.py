"""Values and exceptions out of a process and in again."""

from __future__ import annotations

import datetime
import io
import json
import math
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farhand import flow, task
from farhand.errors import NotSerializable, SilentTooLong, TaskFailed, Unplaceable
from farhand.sdk.encoding import CannotDecode, decode, decode_error, encode, encode_error, summary_of
from farhand.sdk.limits import INLINE_BYTES_MAX
from farhand.sdk.references import ArtifactRef

json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from(["$float", "$dict"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=3) | st.sampled_from(["$float", "$dict", "$artifact", "$"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
anything = st.recursive(
    json_like | st.binary() | st.dates(),
    lambda inner: (
        st.tuples(inner, inner)
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


def same(one: Any, other: Any) -> bool:
    """Equal with equal types all the way down, NaN included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (one != one and other != other) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def round_trip(value: Any) -> Any:
    return decode(encode(value, None)[0], None)


@given(json_like)
@settings(max_examples=300, deadline=None)
def test_what_json_can_say_goes_as_json_and_comes_back_exactly(value: Any) -> None:
    body, digests = encode(value, None)
    assert digests == []
    if body["enc"] == "json":
        json.loads(body["text"], parse_constant=lambda name: pytest.fail(name))
        assert body["text"].isascii()
    assert same(decode(body, None), value)


@given(anything)
@settings(max_examples=200, deadline=None)
def test_everything_else_comes_back_exactly_too(value: Any) -> None:
    assert same(round_trip(value), value)


@pytest.mark.parametrize(
    ("value", "enc"),
    [
        ([1, "a", None, 2.5, {"k": [True]}], "json"),
        ([float("nan")], "json"),
        ("\ud800 alone", "json"),
        ("\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "json"),
        ("\ud83d" + "\ude00", "pickle"),
        (ArtifactRef("a", "sha256:" + "0" * 64, 3), "json"),
        ((1, 2), "pickle"),
        ({1: 2}, "pickle"),
        ({"a"}, "pickle"),
        ([(1,)], "pickle"),
        ([10**5000], "pickle"),
        (datetime.date(2024, 1, 1), "pickle"),
    ],
)
def test_json_is_used_only_when_nothing_is_lost(value: Any, enc: str) -> None:
    assert encode(value, None)[0]["enc"] == enc
    assert same(round_trip(value), value)


@pytest.mark.parametrize("value", ["x" * (INLINE_BYTES_MAX + 1), b"x" * INLINE_BYTES_MAX])
def test_big_values_become_blobs(tmp_path: Path, value: Any) -> None:
    body, digests = encode(value, tmp_path)
    assert digests == [body["digest"]]
    assert [path.name for path in tmp_path.iterdir()] == [body["digest"].partition(":")[2]]
    assert body["size"] == next(tmp_path.iterdir()).stat().st_size
    assert decode(body, lambda digest: tmp_path / digest.partition(":")[2]) == value


@pytest.mark.parametrize(
    "value",
    [
        (b"x" * INLINE_BYTES_MAX,),
        {1: [bytearray(b"y" * INLINE_BYTES_MAX), b"z" * (3 * INLINE_BYTES_MAX)]},
        (["small"] * 50_000, b"a" * INLINE_BYTES_MAX, {"b" * INLINE_BYTES_MAX}),
    ],
)
def test_a_big_value_is_written_in_pieces_as_the_one_pickle_that_any_reader_knows(
    tmp_path: Path, value: Any
) -> None:
    body, _ = encode(value, tmp_path)
    written = (tmp_path / body["digest"].removeprefix("sha256:")).read_bytes()
    assert written == pickle.dumps(value, protocol=5)
    assert len(written) == body["size"]
    assert decode(body, lambda digest: tmp_path / digest.removeprefix("sha256:")) == value


@pytest.mark.parametrize("left", [0, 100, INLINE_BYTES_MAX, -1])
def test_a_big_value_that_is_cut_short_does_not_load(tmp_path: Path, left: int) -> None:
    body, _ = encode((b"x" * (2 * INLINE_BYTES_MAX),), tmp_path)
    path = tmp_path / body["digest"].removeprefix("sha256:")
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(CannotDecode):
        decode(body, lambda _: path)


class Grid:
    """Gives its content as a buffer, as arrays do: writable from ``bytearray``, not from ``bytes``."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce_ex__(self, _: Any) -> Any:
        return Grid, (pickle.PickleBuffer(memoryview(self.content).cast("B", (len(self.content) // 8, 8))),)


@pytest.mark.parametrize("size", [80, 800_000])
@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("kept", [True, False])
def test_what_gives_its_content_as_a_buffer_comes_back(
    tmp_path: Path, kind: Callable[[bytes], Any], size: int, kept: bool
) -> None:
    content = kind(bytes(range(80)) * (size // 80))
    body, _ = encode([Grid(content), "more"], tmp_path if kept else None)
    assert ("digest" in body) == (kept and size > INLINE_BYTES_MAX)
    found, more = decode(body, lambda digest: tmp_path / digest.removeprefix("sha256:"))
    assert (bytes(found.content), type(found.content), more) == (bytes(content), type(content), "more")


def of_a_class_of_its_own() -> object:
    class Local:
        pass

    return Local()


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (threading.Lock(), "_thread.lock"),
        ((number for number in range(3)), "generator"),
        (lambda: 1, "function"),
        (io.TextIOWrapper(io.BytesIO()), "TextIOWrapper"),
        (of_a_class_of_its_own(), "Local"),
    ],
    ids=["lock", "generator", "lambda", "open file", "local class"],
)
def test_what_cannot_be_stored_is_named_by_its_type(value: object, named: str) -> None:
    """B097."""
    with pytest.raises(NotSerializable, match=named):
        encode(value, None)


def test_a_pickle_that_does_not_load_is_one_kind_of_error() -> None:
    with pytest.raises(CannotDecode):
        decode({"enc": "pickle", "text": "AAAA"}, None)


class Odd(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raised_by(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever was raised is what is asked for
        return error
    raise AssertionError("nothing was raised")


def throw(error: BaseException) -> None:
    raise error


def test_an_exception_comes_back_as_its_own_type() -> None:
    try:
        raise KeyError("gone")
    except KeyError as error:
        body = encode_error(error)
    assert "test_encoding.py" in body["traceback"]
    back = decode_error(body)
    assert type(back) is KeyError
    assert back.args == ("gone",)


def test_where_an_exception_was_raised_comes_along_as_its_cause() -> None:
    body = encode_error(raised_by(lambda: int("eleven")))
    told = encode_error(raised_by(lambda: throw(decode_error(body))))["traceback"]
    first, second = told.split("The above exception was the direct cause")
    assert 'int("eleven")' in first
    assert "throw(decode_error(body))" in second
    assert told.count("ValueError: invalid literal") == 2


def test_a_traceback_leaves_out_what_lies_between_two_functions_of_the_user() -> None:
    @task
    def inner(by: int) -> float:
        return 1 / by

    @flow
    def outer(by: int = 0) -> float:
        return inner(by)

    told = encode_error(raised_by(outer))["traceback"]
    assert "in outer" in told
    assert "in inner" in told
    assert "farhand/sdk" not in told


def test_a_traceback_of_our_own_code_alone_still_says_what_was_raised() -> None:
    told = encode_error(raised_by(lambda: decode({"enc": "json", "digest": "none"}, None)))["traceback"]
    assert told.splitlines()[-1].startswith("farhand.sdk.encoding.CannotDecode")


def test_exceptions_that_are_causes_of_each_other_are_told_all_the_same() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__context__, two.__context__ = two, one
    assert "ValueError: one" in encode_error(one)["traceback"]


def test_an_exception_that_does_not_load_becomes_a_task_failure_with_its_text() -> None:
    back = decode_error(encode_error(Odd(1, 2)))
    assert type(back) is TaskFailed
    assert str(back) == "Odd: 1 and 2"


def test_an_exception_that_cannot_be_pickled_or_shown_travels_all_the_same() -> None:
    error = ValueError("x")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    assert "pickle" not in encode_error(error)
    assert "cannot be made" in encode_error(Silent())["message"]
    assert summary_of(MemoryError()) == "MemoryError"


def test_endless_messages_are_cut() -> None:
    assert len(encode_error(ValueError("x" * 10**6))["message"]) < 10_000


@pytest.mark.parametrize(
    ("name", "module", "kind"),
    [
        ("Unplaceable", "farhand.errors", Unplaceable),
        ("SilentTooLong", "farhand.errors", SilentTooLong),
        ("Unplaceable", "pipeline", TaskFailed),
        ("Nothing", "farhand.errors", TaskFailed),
        ("annotations", "farhand.errors", TaskFailed),
        ("Cancelled", "farhand.errors", TaskFailed),
    ],
)
def test_what_the_server_itself_says_of_a_call_comes_as_its_own_exception(
    name: str, module: str, kind: type[Exception]
) -> None:
    back = decode_error({"type": name, "module": module, "message": "no machine", "traceback": ""})
    assert type(back) is kind
    assert str(back) == ("no machine" if kind is not TaskFailed else f"{name}: no machine")
