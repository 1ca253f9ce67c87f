"""``farhand runs compare``: runs side by side."""

from __future__ import annotations

from typing import Any

import click

from ..comparison import ABSENT, comparison, defaults_of
from ..errors import NotFound
from .client import Client, segment
from .naming import run_names
from .options import calls_server, json_option
from .output import cell, print_json, print_table, took

Json = dict[str, Any]


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN [RUN…]", shell_complete=run_names)
@json_option
@calls_server
def compare(client: Client, runs: tuple[str, ...], as_json: bool) -> None:
    """Show runs side by side: parameters, results, metrics, durations, and what was installed.

    What differs between the runs is marked with a star.
    """
    if len(runs) < 2:
        raise click.UsageError("give two runs or more")
    found = [look(client, run) for run in runs]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            f"{'* ' if fact.differs else '  '}{_GROUPS[fact.group]}{fact.name}".rstrip(),
            *(_shown(fact.name if fact.group == "run" else "", value) for value in fact.values),
        )
        for fact in comparison(found)
    ]
    print_table(("", *(run["id"] for run in found)), rows)


def look(client: Client, run: str) -> Json:
    """A run, the defaults of its parameters, and the summaries of its series."""
    found: Json = client.get(f"/runs/{segment(run)}")
    found["defaults"] = defaults_of(found, _flow(client, found["flow"]))
    found["metrics"] = client.get(f"/runs/{segment(found['id'])}/metrics/summary")["items"]
    return found


def _flow(client: Client, name: str) -> Json | None:
    try:
        return client.get(f"/flows/{segment(name)}")
    except NotFound:  # a script's, or one that was deleted
        return None


def _shown(name: str, value: Any) -> str:
    if value is ABSENT:
        return "-"
    if name == "took":
        return took(0, value)
    if name in ("code", "environment"):
        return value.removeprefix("sha256:")[:12]
    return cell(value)


_GROUPS = {"run": "", "parameters": "param ", "result": "result ", "metrics": ""}
"""What the names of a group begin with."""
