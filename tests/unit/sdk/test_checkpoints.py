"""Keys of calls, and what an object that a call has returned is known by."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from farhand.sdk.checkpoints import Ledger
from farhand.sdk.futures import Future


def test_the_same_calls_have_the_same_keys_in_any_order_and_each_its_own() -> None:
    one, other = Ledger(), Ledger()
    calls = [("", "a", (1,)), ("", "a", (2,)), ("", "a", (1,)), ("", "b", (1,)), ("x", "a", (1,))]
    first = [one.key_of(*call)[0] for call in calls]
    second = [other.key_of(*call)[0] for call in reversed(calls)]
    assert len(set(first)) == 5
    assert sorted(first) == sorted(second)


def test_a_future_and_the_value_it_becomes_make_the_same_key() -> None:
    value = [1, 2]
    one, other = Ledger(), Ledger()
    other.produced(value, "k1", 6)
    assert one.key_of("", "a", [Future("k1", "t")]) == other.key_of("", "a", [value])
    assert other.key_of("", "a", [value]) != other.key_of("", "a", [[1, 2]])


def test_small_values_hash_by_content_whoever_made_them() -> None:
    ledger = Ledger()
    for value in (None, True, 5, "text", b"b", (), 1.5):
        ledger.produced(value, "k1", 3)
        assert ledger.identify(value) is None


def test_what_has_no_canonical_form_has_a_key_but_is_not_kept() -> None:
    key, why = Ledger().key_of("", "a", [threading.Lock()])
    assert key
    assert why is not None


def test_an_object_that_two_calls_return_is_one_object_in_the_rerun_too() -> None:
    ledger = Ledger()
    shared = [1]
    assert ledger.produced(shared, "k1", 3) is None
    owner = ledger.produced(shared, "k2", 3)
    assert owner == "k1"
    body = ledger.alias({"enc": "json", "text": "[1]"}, owner)
    rerun = Ledger()
    second = rerun.restored([1], "k2", body, 3)
    first = rerun.restored([1], "k1", {"enc": "json", "text": "[1]"}, 3)
    assert first is second
    assert rerun.identify(first) == ledger.identify(shared) == "k1"


def test_an_object_is_not_kept_alive_where_its_type_allows_that() -> None:
    class Big:
        pass

    ledger = Ledger()
    big = Big()
    ledger.produced(big, "k1", 50_000_000)
    assert ledger.identify(big) == "k1"
    del big
    gc.collect()
    assert ledger.returned_by("k1") is None


def test_what_is_kept_alive_has_a_limit_and_the_oldest_go_first() -> None:
    ledger = Ledger()
    lists = [[number] for number in range(5)]
    for number, value in enumerate(lists):
        ledger.produced(value, f"k{number}", 50 * 1024 * 1024)
    assert [ledger.identify(value) for value in lists] == [None, None, None, "k3", "k4"]


def test_cancelled_and_unkept_outcomes_are_not_replayed() -> None:
    ledger = Ledger()
    ledger.keep([{"key": "a", "state": "cancelled"}, {"key": "b", "state": "failed", "kept": False}])
    assert ledger.kept("a") is None
    assert ledger.kept("b") is None


def outcome(key: str, seeded: bool) -> dict[str, Any]:
    return {"key": key, "state": "completed", "kept": True, "seeded": seeded}


@pytest.mark.parametrize(
    ("in_order", "replayed"),
    [(False, ["a", "c", "own", "d"]), (True, ["a", "own"])],
)
def test_outcomes_taken_over_by_a_changed_run_are_good_up_to_the_first_call_without_one(
    in_order: bool, replayed: list[str]
) -> None:
    ledger = Ledger(in_order=in_order)
    ledger.keep([outcome(key, True) for key in "acd"] + [outcome("own", False)])
    assert [key for key in ("a", "new", "c", "own", "d") if ledger.kept(key)] == replayed


def test_what_an_earlier_attempt_of_a_changed_run_made_ends_what_it_took_over() -> None:
    ledger = Ledger(in_order=True)
    ledger.keep([outcome("own", False), outcome("a", True)])
    assert [key for key in ("own", "a") if ledger.kept(key)] == ["own"]
