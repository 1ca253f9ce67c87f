"""Following a run: its states and its log, as they come, until it has ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import click

from ..errors import StoreClosed, Unreachable
from ..lifecycle import RUN, is_terminal
from .client import Client, segment
from .output import print_json, report, tell_line

Json = dict[str, Any]


def read_lines(client: Client, of: str, after: int, tell: Callable[[Json], None], nouns: str = "runs") -> int:
    """Hand every line of a run after number ``after`` to ``tell``; returns the number of the last one."""
    while True:
        items = client.get(f"/{nouns}/{segment(of)}/logs", after=after)["items"]
        for line in items:
            tell(line)
        if not items:
            return after
        after = items[-1]["number"]


def until_ended(
    client: Client,
    run: str,
    tell_line: Callable[[Json], None] | None = None,
    tell_state: Callable[[Json], None] | None = None,
) -> Json:
    """Wait for the end of a run; returns it. Nothing is asked but when the server says that it moved."""
    following = _Following(client, run, tell_line, tell_state)
    with closing(client.follow(run)) as changes:
        for _ in changes:
            # A server that has just gone away is waited for by the stream; what is missed now is asked then.
            with suppress(Unreachable, StoreClosed):
                now = following.look()
                if is_terminal(RUN, now["state"]):
                    return now
    raise AssertionError("following has no end of its own")


def tell_started(client: Client, run: Json, wait: bool, follow: bool, as_json: bool) -> None:
    """Tell of a run that was just started; where that is wanted, wait, and end the command as it ended."""
    if wait or follow:
        if not as_json:
            click.echo(run["id"], err=True)
        told = tell_line if follow and not as_json else None
        report(until_ended(client, run["id"], told), as_json)
    elif as_json:
        print_json(run)
    else:
        click.echo(run["id"])


@dataclass
class _Following:
    """How far a run has been told."""

    client: Client
    run: str
    tell_line: Callable[[Json], None] | None
    tell_state: Callable[[Json], None] | None
    state: str = ""
    after: int = 0

    def look(self) -> Json:
        """Tell what is new; returns the run as it is."""
        # The state first: lines that come before the end of a run are recorded before it.
        now: Json = self.client.get(f"/runs/{segment(self.run)}")
        if self.tell_line is not None:
            read_lines(self.client, self.run, self.after, self._told)
        if now["state"] != self.state:
            self.state = now["state"]
            if self.tell_state is not None:
                self.tell_state(now)
        return now

    def _told(self, line: Json) -> None:
        # Line by line, so that a page that fails to arrive repeats nothing of those before it.
        if self.tell_line is not None:
            self.tell_line(line)
        self.after = line["number"]
