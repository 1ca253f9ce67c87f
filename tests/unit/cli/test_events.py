"""``farhand events``: what happened, listed and followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from farhand.cli import events
from farhand.errors import Unreachable
from farhand.model import Event, Page
from tests.unit.web.fakes import T0, FakeServices

from .conftest import Call


class Log:
    """An event log as the server answers for it: ``grows`` by so many entries with each notice."""

    def __init__(self, *grows: int, away: frozenset[int] = frozenset()) -> None:
        self.items: list[dict[str, Any]] = []
        self._grows = grows
        self._away = away
        self._notice = 0
        self.asked: list[dict[str, Any]] = []

    def follow(self, run: str | None) -> Iterator[None]:
        for notice, count in enumerate(self._grows):
            self._notice = notice
            first = len(self.items) + 1
            self.items += [_entry(number, run) for number in range(first, first + count)]
            yield

    def get(self, path: str, *, limit: int, cursor: str | None, **wanted: Any) -> Any:
        assert path == "/events"
        self.asked.append({"limit": limit, **wanted})
        if self._notice in self._away:
            raise Unreachable("it is being restarted")
        below = self.items[: int(cursor or len(self.items) + 1) - 1]
        page = below[-limit:]
        more = len(below) > limit
        return {"items": page[::-1], "next": str(page[0]["id"]) if more else None}


def _entry(number: int, run: str | None) -> dict[str, Any]:
    return {"id": number, "at": T0, "kind": "worker.lost", "message": "", "run": run, "worker": "gpu1"}


WANTED = {"kind": None, "worker": None, "run": None}


def followed(log: Log, limit: int = 3) -> list[int]:
    told: list[int] = []
    events._follow(log, WANTED, limit, lambda event: told.append(event["id"]))  # type: ignore[arg-type]
    return told


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (Log(2, 0, 1), [1, 2, 3]),
        (Log(0, 1), [1]),
        (Log(5, 1), [3, 4, 5, 6]),
        (Log(1, 2 * events.PAGE + 50), list(range(1, 2 * events.PAGE + 52))),
        (Log(1, 2, 1, away=frozenset({1})), [1, 2, 3, 4]),
        (Log(3, 1, away=frozenset({0})), [2, 3, 4]),
    ],
)
def test_a_followed_log_tells_the_latest_and_then_each_entry_once_in_order(log: Log, told: list[int]) -> None:
    """However many came at once, and whatever came while the server did not answer."""
    assert followed(log) == told


def test_what_is_listed_is_narrowed_and_what_there_is_none_of_is_said(
    call: Call, server: str, services: FakeServices
) -> None:
    listed = call("events", "list", "--worker", "gpu1", "--kind", "worker.", "--limit", "2")
    when, line = listed.stdout.splitlines()
    assert when.split() == ["when", "what", "about", "says"]
    assert line.split()[-6:] == ["worker.attached", "gpu1", "gpu1", "attached", "from", "box"]
    asked: list[Any] = []

    async def nothing(*wanted: Any) -> Page[Event]:
        asked.append(wanted)
        return Page([], None)

    services.workers.events = nothing  # type: ignore[method-assign]
    none = call("events", "list", "--worker", "other", "--run", "0run1", "--kind", "run.")
    assert asked == [(50, None, "other", "0run1", "run.")]
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "Nothing like that has happened.\n")
    assert call("events", "list", "--run", "never").exit_code == 2
    both = call("events", "list", "--follow", "--cursor", "3")
    assert both.exit_code == 2
    assert "give one of them" in both.stderr


def test_a_page_says_how_to_go_on(call: Call, server: str, services: FakeServices) -> None:
    entry = Event(7, T0, "run.completed", "", "0run1")

    async def page(*_: Any, **__: Any) -> Page[Event]:
        return Page([entry], "7")

    services.workers.events = page  # type: ignore[method-assign]
    done = call("events", "list")
    assert done.stdout.splitlines()[1].split()[-2:] == ["run.completed", "0run1"]
    assert done.stderr == "There are more: --cursor 7\n"


def test_followed_entries_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    events._tell(_entry(1, "r1"))
    assert capsys.readouterr().out.split("  ")[1:] == ["worker.lost", "r1 gpu1\n"]
    events._tell_object(_entry(1, "r1"))
    assert capsys.readouterr().out.startswith('{"id": 1, ')
