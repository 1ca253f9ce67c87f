"""The canonical hash: equal values, equal hashes, in any process."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import functools
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farhand.sdk.hashing import Unhashable, canonical, digest_of


def form(value: Any) -> bytes:
    return canonical(value, lambda _: None)


class Point:
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __repr__(self) -> str:
        return f"Point({self.x!r}, {self.y!r})"


class Tags(set[str]):
    pass


class Colour(enum.Enum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")

atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=200)
)
hashables = st.recursive(
    atoms, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4), max_leaves=6
)
values = st.recursive(
    atoms | hashables | st.dates() | st.datetimes() | st.decimals(allow_nan=False) | st.just(Colour.RED),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.sets(hashables, max_size=5)
        | st.builds(Point, inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(collections.deque, st.lists(inner, max_size=3))
        | st.builds(collections.OrderedDict, st.dictionaries(st.text(), inner, max_size=3))
    ),
    max_leaves=12,
)


@pytest.mark.fault("2.15")
@given(values)
@settings(max_examples=200, deadline=None)
def test_a_value_hashes_the_same_after_a_pickle_round_trip(value: Any) -> None:
    assert form(value) == form(pickle.loads(pickle.dumps(value, protocol=5)))


@given(st.lists(hashables, unique=True, max_size=6), st.randoms())
@settings(max_examples=100, deadline=None)
def test_neither_sets_nor_dicts_depend_on_the_order_of_insertion(items: list[Any], random: Any) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert form(set(items)) == form(set(shuffled))
    assert form(dict.fromkeys(items, 1)) == form(dict.fromkeys(shuffled, 1))


@given(values, values)
@settings(max_examples=200, deadline=None)
def test_values_that_differ_hash_differently(one: Any, other: Any) -> None:
    if form(one) == form(other):
        assert type(one) is type(other)
        assert repr(one) == repr(other) or one == other


PROGRAM = """
import collections, datetime, decimal, fractions, pathlib, re, uuid
from farhand.sdk.hashing import canonical
class Point:
    def __init__(self): self.tags = {"a", "b", "c"}; self.when = datetime.date(2024, 1, 1)
Point.__module__ = "shapes"
value = [
    {"x", "y", "z", b"b", 1, 2.5, None}, frozenset({("a", 1), ("b", frozenset({"c", "d"}))}),
    {"k": {"one", "two", "three"}}, Point(), collections.Counter("hello"), re.compile("a+"),
    uuid.UUID(int=5), pathlib.PurePosixPath("/a/b"), decimal.Decimal("1.50"), fractions.Fraction(1, 3),
    datetime.timedelta(hours=1), range(3), slice(1, 2), 10**5000, float("nan"), "\\ud800", 1j,
]
print(canonical(value, lambda _: None).hex())
"""


@pytest.mark.fault("2.15")
def test_the_hash_is_the_same_under_any_hash_seed() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(found) == 1


@pytest.mark.parametrize("size", [64 * 1024 - 1, 64 * 1024, 1024 * 1024])
def test_large_contents_are_told_apart_by_content_and_type(size: int) -> None:
    content = bytes(size)
    values = [content, content[:-1] + b"1", content + b"0", bytearray(content), content.decode()]
    assert len({digest_of([canonical(value, lambda _: None)]) for value in values}) == len(values)
    assert canonical(bytearray(content), lambda _: None) == canonical(bytearray(content), lambda _: None)
    assert canonical(content, lambda _: None) == canonical(bytes(size), lambda _: None)


def test_an_ordered_dict_is_told_by_its_order() -> None:
    one, other = collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)
    assert form(one) != form(other)
    assert form(dict(one)) == form(dict(other))


def test_shared_references_do_not_show_and_cost_nothing() -> None:
    inner = [1, 2]
    assert form([inner, inner]) == form([[1, 2], [1, 2]])
    deep: Any = []
    for _ in range(200):
        deep = [deep, deep]
    assert form(deep) == form(pickle.loads(pickle.dumps(deep)))


def test_cycles_have_a_form() -> None:
    one: list[Any] = [1]
    one.append(one)
    other: list[Any] = [1]
    other.append(other)
    assert form(one) == form(other) == form(pickle.loads(pickle.dumps(one)))
    assert form(one) != form([1, [1]])


def test_a_set_subclass_is_sorted_too() -> None:
    assert form(Tags(["a", "b"])) == form(Tags(["b", "a"])) != form({"a", "b"})


def test_named_functions_and_classes_hash_by_name() -> None:
    assert form(Point) == form(Point) != form(Path)
    assert form(functools.partial(form, 1)) == form(functools.partial(form, 1))
    assert form(len) != form(max)


@pytest.mark.parametrize(
    "value", [lambda: 1, threading.Lock(), (x for x in ()), [object, [threading.Lock()]]]
)
def test_what_cannot_be_taken_apart_is_unhashable(value: Any) -> None:
    with pytest.raises(Unhashable):
        form(value)


def test_types_tell_values_apart() -> None:
    same = [
        1,
        1.0,
        True,
        "1",
        b"1",
        [1],
        (1,),
        {1},
        frozenset({1}),
        {1: 1},
        decimal.Decimal(1),
        bytearray(b"1"),
    ]
    assert len({form(value) for value in same}) == len(same)
    assert form(datetime.datetime(2024, 1, 1)) != form(datetime.date(2024, 1, 1))
