"""``farhand events``: what happened, to runs, workers, services and machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from typing import Any

import click

from ..errors import StoreClosed, Unreachable
from .client import Client, segment
from .naming import run_names, worker_names
from .options import calls_server, json_option
from .output import moment, print_json, print_table

Json = dict[str, Any]

PAGE = 200
"""So many entries are asked for at once while the log is followed."""


@click.group()
def events() -> None:
    """What happened, to runs, workers, services and machines."""


@events.command("list")
@click.option(
    "--kind", metavar="KIND", help="Only this kind, such as worker.lost; worker. is all that begin so."
)
@click.option(
    "--worker", metavar="WORKER", help="Only what concerns this worker.", shell_complete=worker_names
)
@click.option("--run", metavar="RUN", help="Only what concerns this run.", shell_complete=run_names)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, metavar="N", help="How many at most.")
@click.option("--cursor", metavar="NEXT", help="Where the list before ended.")
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Print the latest in the order they happened, then each one as it comes, until interrupted.",
)
@json_option
@calls_server
def list_events(
    client: Client,
    kind: str | None,
    worker: str | None,
    run: str | None,
    limit: int,
    cursor: str | None,
    follow: bool,
    as_json: bool,
) -> None:
    """List what happened, the newest first; with --follow and --json one object a line."""
    if follow and cursor is not None:
        raise click.UsageError("--cursor lists what is past and --follow what comes; give one of them")
    if run is not None:
        run = client.get(f"/runs/{segment(run)}")["id"]
    wanted = {"kind": kind, "worker": worker, "run": run}
    if follow:
        _follow(client, wanted, limit, _tell_object if as_json else _tell)
        return
    page = client.get("/events", limit=limit, cursor=cursor, **wanted)
    if as_json:
        print_json(page)
        return
    if not page["items"]:
        click.echo("Nothing like that has happened.", err=True)
        return
    print_table(
        ("when", "what", "about", "says"),
        [(moment(event["at"]), event["kind"], _about(event), event["message"]) for event in page["items"]],
    )
    if page["next"]:
        click.echo(f"There are more: --cursor {page['next']}", err=True)


def _follow(client: Client, wanted: Json, limit: int, tell: Callable[[Json], None]) -> None:
    """Tell the latest entries, then all that come. It is asked when it says that something moved."""
    told: int | None = None
    with closing(client.follow(wanted["run"])) as changes:
        for _ in changes:
            # A server that has just gone away is waited for by the stream; what is missed now is asked then.
            with suppress(Unreachable, StoreClosed):
                for event in _newer(client, wanted, told, limit):
                    tell(event)
                    told = event["id"]
                told = told or 0


def _newer(client: Client, wanted: Json, after: int | None, limit: int) -> list[Json]:
    """What came after an entry, or else the latest, in the order it happened."""
    found: list[Json] = []
    cursor = None
    while True:
        page = client.get("/events", limit=limit if after is None else PAGE, cursor=cursor, **wanted)
        fresh = [event for event in page["items"] if after is None or event["id"] > after]
        found += fresh
        cursor = page["next"]
        if after is None or cursor is None or len(fresh) < len(page["items"]):
            return found[::-1]


def _about(event: Json) -> str:
    return " ".join(filter(None, (event["run"], event["worker"]))) or "-"


def _tell(event: Json) -> None:
    at = datetime.fromtimestamp(event["at"]).astimezone()
    click.echo(f"{at:%Y-%m-%d %H:%M:%S}  {event['kind']}  {event['message'] or _about(event)}")


def _tell_object(event: Json) -> None:
    click.echo(json.dumps(event))
