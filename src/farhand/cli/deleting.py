"""``farhand runs delete`` and ``farhand flows delete``."""

from __future__ import annotations

import time
from typing import Any

import click

from ..errors import Usage
from ..lifecycle import RUN
from ..sdk.durations import seconds
from .client import Client, segment
from .naming import flow_argument, run_names
from .options import calls_server, json_option
from .output import agree, print_json


@click.command("delete")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=run_names)
@click.option("--flow", metavar="FLOW", help="Runs of this flow.")
@click.option("--state", type=click.Choice(list(RUN)), help="Runs in this state.")
@click.option("--sweep", metavar="NAME", help="Runs that were started together by this name.")
@click.option("--host", metavar="HOST", help="Runs that were on this machine last.")
@click.option("--older-than", metavar="TIME", help="Runs created longer ago than this, like 30d.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@calls_server
def delete_runs(
    client: Client,
    runs: tuple[str, ...],
    flow: str | None,
    state: str | None,
    sweep: str | None,
    host: str | None,
    older_than: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete runs with all they left: the named ones, or all that fit the options.

    Runs that are not over stay. What was interrupted goes on when asked for again.
    """
    asked = {"flow": flow, "state": state, "sweep": sweep, "host": host, "before": _moment(older_than)}
    conditions = {name: value for name, value in asked.items() if value is not None}
    if bool(runs) == bool(conditions):
        raise Usage("name the runs to delete, or say which by --flow, --state, --sweep, --host, --older-than")
    if not yes:
        agree("These runs, with logs, metrics and results, will be gone. Go on?")
    if runs:
        for run in runs:
            client.delete(f"/runs/{segment(run)}")
        counts = {"deleted": len(runs), "refused": 0}
    else:
        counts = _delete_all(client, conditions)
    if as_json:
        print_json(counts)
    else:
        refused = f"; {counts['refused']} are not over and stay" if counts["refused"] else ""
        click.echo(f"{counts['deleted']} runs are deleted{refused}")


def _delete_all(client: Client, conditions: dict[str, Any]) -> dict[str, int]:
    counts, cursor = {"deleted": 0, "refused": 0}, None
    while True:
        batch = client.delete("/runs", cursor=cursor, **conditions)
        for name in counts:
            counts[name] += batch[name]
        cursor = batch["next"]
        if cursor is None:
            return counts


def _moment(older_than: str | None) -> float | None:
    if older_than is None:
        return None
    try:
        return time.time() - seconds(older_than)
    except ValueError as error:
        raise Usage(f"--older-than: {older_than!r} {error}") from error


@click.command("delete")
@flow_argument
@click.option("--force", is_flag=True, help="Cancel the runs of a declared flow that are not over.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@calls_server
def delete_flow(client: Client, flow: str, force: bool, yes: bool, as_json: bool) -> None:
    """Delete a flow that was put, or that its project has no more, and all its runs."""
    if not yes:
        agree(f"All runs of {flow}, with logs, metrics and results, will be gone. Go on?")
    gone = client.delete(f"/flows/{segment(flow)}", force=force or None)
    if as_json:
        print_json(gone)
    else:
        click.echo(f"{flow} and its {gone['runs']} runs are deleted")
