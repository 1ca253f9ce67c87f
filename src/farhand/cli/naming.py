"""Arguments that name something on the server; a shell can complete them by asking it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..errors import FarhandError

SHOWN = 100
"""Of the runs, the latest so many are offered."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def flow_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument FLOW."""
    return click.argument("flow", shell_complete=flow_names)(command)


def run_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument RUN: an id, or the beginning of one."""
    return click.argument("run", shell_complete=run_names)(command)


def schedule_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument SCHEDULE: an id, or the beginning of one."""
    return click.argument("schedule", shell_complete=_offered("/schedules", "id", "when"))(command)


def service_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument SERVICE."""
    return click.argument("service", shell_complete=_offered("/services", "name", "state"))(command)


def worker_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument WORKER."""
    return click.argument("worker", shell_complete=worker_names)(command)


def _offered(path: str, key: str, says: str, **asked: Any) -> Completer:
    """What the server has at ``path``, by ``key``. A server that does not answer offers nothing."""

    def complete(ctx: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
        from .client import find

        given = ctx.params
        try:
            with find(given.get("url"), given.get("home"), bool(given.get("insecure"))) as client:
                items = client.get(path, **asked)["items"]
        except FarhandError:  # there is nobody to tell: what is written next goes into the command line
            return []
        return [CompletionItem(item[key], help=item[says]) for item in items if item[key].startswith(begun)]

    return complete


run_names = _offered("/runs", "id", "flow", limit=SHOWN)
flow_names = _offered("/flows", "name", "description")
worker_names = _offered("/workers", "name", "state")
