"""The options that say which runs are meant, shared by commands that list them."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from ..errors import FarhandError
from ..lifecycle import RUN
from ..sdk.durations import seconds

Filter = dict[str, Any]
"""Query parameters of GET /runs; those that are None are left out."""


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the command ``wanted``, a `Filter`."""

    @click.option("--flow", metavar="FLOW", help="Only runs of this flow.")
    @click.option("--state", type=click.Choice(list(RUN)), help="Only runs in this state.")
    @click.option("--sweep", metavar="NAME", help="Only runs of this sweep.")
    @click.option(
        "--since",
        metavar="WHEN",
        help="Only runs created since then: a length of time like 2h, or a date like 2026-01-31.",
    )
    @click.option("--host", metavar="HOST", help="Only runs that are, or were last, on this machine.")
    @click.option("--parent", metavar="RUN", help="Only runs of flows that this run called.")
    @click.option(
        "--text", metavar="TEXT", help="Only runs with this in id, flow, name, message or parameters."
    )
    @functools.wraps(command)
    def filtering(
        *args: Any,
        flow: str | None,
        state: str | None,
        sweep: str | None,
        since: str | None,
        host: str | None,
        parent: str | None,
        text: str | None,
        **options: Any,
    ) -> Any:
        at = None if since is None else _moment_of(since)
        wanted = {
            "flow": flow,
            "state": state,
            "sweep": sweep,
            "since": at,
            "host": host,
            "parent": parent,
            "text": text,
        }
        return command(*args, wanted=wanted, **options)

    return filtering


def _moment_of(text: str) -> float:
    """A length of time before now, or a date with or without a time of day, local unless it says its zone."""
    if re.match(r"\d{4}-\d\d-\d\d", text):
        try:
            return datetime.fromisoformat(text).astimezone().timestamp()
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is no date: {error}", param_hint="--since") from error
    try:
        return time.time() - seconds(text)
    except (ValueError, TypeError, FarhandError) as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--since") from error
