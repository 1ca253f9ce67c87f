"""The runtime that is looked for before a server has named one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farhand_worker.address import Address, BadAddress, parse
from farhand_worker.ahead import Ahead
from farhand_worker.options import Options
from farhand_worker.runtimes import Runtimes

NEWER, OLDER, OTHERS = (f"sha256:{name * 64}" for name in "bac")


def options() -> Options:
    return Options(lambda: parse("http://127.0.0.1:1", False), "token", "name", Path())


@pytest.fixture
def runtimes(tmp_path: Path) -> Runtimes:
    """Two of ours, and the last in use, which was compiled for another interpreter."""
    ours, another = Runtimes(tmp_path, "python3"), Runtimes(tmp_path, "another")
    for at, (digest, owner) in enumerate([(OLDER, ours), (NEWER, ours), (OTHERS, another)]):
        home = owner.home(digest)
        home.mkdir()
        owner.mark(home).touch()
        os.utime(home, (at, at))
    return ours


def test_without_a_server_it_is_the_latest_that_is_compiled_for_this_python(runtimes: Runtimes) -> None:
    told: list[Path] = []
    ahead = Ahead(options(), runtimes, told.append)
    ahead.look()
    assert ahead.found.result(10) == NEWER
    assert told == [runtimes.home(NEWER)]


def test_without_one_and_without_a_server_there_is_none(tmp_path: Path) -> None:
    told: list[Path] = []
    ahead = Ahead(options(), Runtimes(tmp_path, "python3"), told.append)
    ahead.look()
    assert ahead.found.result(10) is None
    assert told == []


def test_an_address_that_cannot_be_read_is_for_the_dial_to_say(tmp_path: Path) -> None:
    def unreadable() -> Address:
        raise BadAddress("cannot read it")

    told: list[Path] = []
    ahead = Ahead(Options(unreadable, "token", "name", tmp_path), Runtimes(tmp_path, "python3"), told.append)
    ahead.look()
    assert ahead.found.result(10) is None
    assert told == []


def test_whatever_goes_wrong_those_who_wait_are_told(tmp_path: Path) -> None:
    def broken() -> Address:
        raise RuntimeError("unforeseen")

    ahead = Ahead(Options(broken, "token", "name", tmp_path), Runtimes(tmp_path, "python3"), lambda _: None)
    with pytest.raises(RuntimeError):
        ahead._run()
    assert ahead.found.result(0) is None
