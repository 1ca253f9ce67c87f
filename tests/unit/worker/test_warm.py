"""Engines without a job: which is used next, which is let go."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from farhand_worker.warm import Warm


@dataclass(eq=False)
class Engine:
    key: str = "key"
    environment: str = "env"
    is_ready: bool = True


@pytest.fixture
def warm() -> Warm[Engine]:
    return Warm()


def test_the_latest_in_use_is_used_first_and_the_longest_idle_is_let_go(warm: Warm[Engine]) -> None:
    first, second, third = Engine(), Engine(), Engine()
    for engine in (first, second, third):
        warm.put(engine)
    assert warm.beyond(2) == [first]
    assert warm.take("key") is third


def test_an_engine_is_good_for_its_own_key_and_only_once_it_is_ready(warm: Warm[Engine]) -> None:
    other, starting = Engine(key="other"), Engine(is_ready=False)
    warm.put(other)
    warm.put(starting)
    assert warm.take("key") is None
    starting.is_ready = True
    assert warm.take("key") is starting
    assert warm.take("key") is None


def test_a_successor_is_none_too_many_and_comes_in_when_its_predecessor_is_done(warm: Warm[Engine]) -> None:
    old, new = Engine(), Engine()
    warm.put_behind(new, old)
    warm.put(old)
    assert warm.beyond(1) == []
    assert warm.take("key") is old
    assert warm.drop(old) is new
    assert warm.take("key") is new


def test_a_successor_is_used_where_there_is_no_other(warm: Warm[Engine]) -> None:
    busy, new = Engine(), Engine()
    warm.put_behind(new, busy)
    assert warm.take("key") is new
    assert warm.drop(busy) is None


def test_a_successor_that_has_died_follows_nobody(warm: Warm[Engine]) -> None:
    old, new = Engine(), Engine()
    warm.put_behind(new, old)
    assert new in warm
    assert warm.drop(new) is None
    assert new not in warm
    assert warm.drop(old) is None


def test_what_knows_of_another_environment_is_outdated_a_successor_too(warm: Warm[Engine]) -> None:
    old, new, fresh, starting = Engine(), Engine(), Engine(environment="now"), Engine(is_ready=False)
    warm.put(old)
    warm.put_behind(new, old)
    warm.put(fresh)
    warm.put(starting)
    assert warm.outdated("now") == [old, new]
