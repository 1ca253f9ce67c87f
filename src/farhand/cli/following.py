"""Following a run: its states and its log, as they come, until it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..lifecycle import RUN, is_terminal
from .client import Client, segment

Json = dict[str, Any]


def read_lines(client: Client, run: str, after: int, tell: Callable[[Json], None]) -> int:
    """Hand every line after number ``after`` to ``tell``; returns the number of the last one."""
    while True:
        items = client.get(f"/runs/{segment(run)}/logs", after=after)["items"]
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
    state, after = "", 0
    changes = client.follow(run)
    for _ in changes:
        # The state first: lines that come before the end of a run are recorded before it.
        now: Json = client.get(f"/runs/{segment(run)}")
        if tell_line is not None:
            after = read_lines(client, run, after, tell_line)
        if now["state"] != state:
            state = now["state"]
            if tell_state is not None:
                tell_state(now)
        if is_terminal(RUN, state):
            changes.close()
            return now
    raise AssertionError("following has no end of its own")
