"""``farhand runs``: start runs on the server, look at them, cancel them."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import Usage
from .calls import Listed, calls_options, print_call, print_calls, read_calls
from .client import Client, segment
from .compare import compare
from .deleting import delete_runs
from .export import export
from .following import read_lines, tell_started, until_ended
from .listing import Filter, filter_options
from .naming import flow_argument, run_argument
from .options import calls_server, json_option, params_option, waiting_options
from .output import (
    clip,
    compact,
    moment,
    print_facts,
    print_json,
    print_table,
    said,
    tell_dated_line,
    tell_line,
    took,
)
from .params import read_params
from .retry import retry
from .why import why

Json = dict[str, Any]


@click.group()
def runs() -> None:
    """Start runs on the server, look at them, cancel and retry them."""


for _command in (retry, why, compare, export, delete_runs):
    runs.add_command(_command)


@runs.command()
@flow_argument
@params_option
@waiting_options
@json_option
@calls_server
def start(
    client: Client, flow: str, given: tuple[str, ...], idempotency_key: str | None, **wanted: bool
) -> None:
    """Start a run of FLOW on the server and print its id.

    Where the run is waited for, its result is printed, as JSON, and the id goes to stderr.
    """
    params = read_params(client.get(f"/flows/{segment(flow)}")["schema"], given)
    body = {"params": params, "idempotency_key": idempotency_key}
    tell_started(client, client.post(f"/flows/{segment(flow)}/runs", body), **wanted)


@runs.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(1, 1000), default=20, metavar="N", help="How many at most.")
@click.option("--cursor", metavar="CURSOR", help="Where the page before ended.")
@json_option
@calls_server
def list_runs(client: Client, wanted: Filter, limit: int, cursor: str | None, as_json: bool) -> None:
    """List runs, the newest first."""
    page = _read_page(client, wanted, limit, cursor)
    if as_json:
        print_json(page)
        return
    if not page["items"]:
        asked = cursor or any(value is not None for value in wanted.values())
        click.echo("No run is like that." if asked else "There are no runs yet.", err=True)
        return
    print_table(
        ("run", "flow", "state", "worker", "created", "took", "message"),
        [
            (
                run["id"],
                run["name"] or run["flow"],
                run["state"],
                run["worker"] or "-",
                moment(run["created_at"]),
                took(run["started_at"], run["ended_at"]),
                clip(run["message"]),
            )
            for run in page["items"]
        ],
    )
    if page["next"]:
        click.echo(f"There are more: --cursor {page['next']}", err=True)


def _read_page(client: Client, wanted: Filter, limit: int, cursor: str | None) -> Json:
    """A page with as many runs as there are; a search for text answers in pieces."""
    items: list[Json] = []
    while True:
        page = client.get("/runs", limit=limit - len(items), cursor=cursor, **wanted)
        items += page["items"]
        cursor = page["next"]
        if cursor is None or len(items) >= limit:
            return {"items": items, "next": cursor}


@runs.command()
@run_argument
@click.option(
    "--call",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the call of this number alone: its result, or its traceback.",
)
@calls_options
@json_option
@calls_server
def show(client: Client, run: str, call: int | None, listed: Listed, as_json: bool) -> None:
    """Show a run, by its id or the beginning of it, and its calls.

    Of more than 50 calls those that failed come first, and it is said how the others are seen. With
    --json a run has the calls only where --state, --after or --limit say which.
    """
    if call is not None and listed.asked:
        raise Usage("--call shows one call; it goes without --state, --after and --limit")
    found = client.get(f"/runs/{segment(run)}")
    if call is not None:
        print_call(client, found["id"], call, as_json)
        return
    if as_json:
        tasks = {"tasks": read_calls(client, found["id"], listed)} if listed.asked else {}
        print_json(found | tasks)
        return
    print_facts(
        {
            "run": found["id"],
            "flow": found["flow"],
            "name": found["name"],
            "state": found["state"],
            "why": found["message"] or (found["reason"] if found["reason"] != found["state"] else ""),
            "worker": found["worker"] or "",
            "retry of": found["retry_of"] or "",
            "called by": found["parent"] or "",
            "sweep": found["sweep"] or "",
            "due": "" if found["scheduled_for"] is None else moment(found["scheduled_for"]),
            "created": moment(found["created_at"]),
            "took": took(found["started_at"], found["ended_at"]),
            "progress": said(found["progress"]),
            "params": compact(found["params"]),
            "result": "" if found["result_form"] is None else compact(found["result"]),
        }
    )
    if found["error"] and found["error"].get("traceback"):
        click.echo(f"\n{found['error']['traceback'].rstrip()}")
    if found["attempts"]:
        click.echo("")
        _print_attempts(found["attempts"])
    print_calls(client, found["id"], found["worker"], listed)


def _print_attempts(attempts: list[Json]) -> None:
    print_table(
        ("attempt", "worker", "host", "handed over", "took", "outcome", "message"),
        [
            (
                str(attempt["number"]),
                attempt["worker"],
                attempt["host"] or "-",
                moment(attempt["leased_at"]),
                took(attempt["started_at"], attempt["ended_at"]),
                attempt["outcome"] or "under way",
                clip(attempt["message"]),
            )
            for attempt in attempts
        ],
    )


@runs.command()
@run_argument
@click.option("--follow", "-f", is_flag=True, help="Print lines as they come, until the run ends.")
@click.option("--times", "-t", is_flag=True, help="Print when each line was written, and its level.")
@json_option
@calls_server
def logs(client: Client, run: str, follow: bool, times: bool, as_json: bool) -> None:
    """Print a run's log; with --json one object a line."""
    found = client.get(f"/runs/{segment(run)}")
    tell = _tell_object if as_json else tell_dated_line if times else tell_line
    if follow:
        until_ended(client, found["id"], tell)
    else:
        read_lines(client, found["id"], 0, tell)


def _tell_object(line: Json) -> None:
    click.echo(json.dumps(line))


@runs.command()
@run_argument
@click.option("--wait", is_flag=True, help="Wait until the run has ended.")
@json_option
@calls_server
def cancel(client: Client, run: str, wait: bool, as_json: bool) -> None:
    """Cancel a run and all that it started."""
    found = client.post(f"/runs/{segment(run)}/cancel")
    if wait:
        found = until_ended(client, found["id"])
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['id']} is {found['state']}")
