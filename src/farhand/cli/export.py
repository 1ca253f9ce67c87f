"""``farhand runs export``: runs as CSV or JSON lines, as they are read."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from .client import Client
from .listing import Filter, filter_options
from .options import calls_server

Json = dict[str, Any]
PAGE = 500

COLUMNS = (
    "id",
    "flow",
    "state",
    "reason",
    "message",
    "created_at",
    "started_at",
    "ended_at",
    "duration_s",
    "worker",
    "attempt",
    "retry_of",
    "sweep",
    "params",
    "result",
)
"""The columns of CSV; ``params`` and ``result`` are JSON."""


@click.command()
@click.option("--csv", "form", flag_value="csv", help="Comma-separated values with a header.")
@click.option(
    "--jsonl", "--json", "form", flag_value="jsonl", help="One JSON object a line, with all that is known."
)
@filter_options
@calls_server
def export(client: Client, form: str | None, wanted: Filter) -> None:
    """Write runs, the newest first, to standard output.

    Times are seconds since the epoch. Rows are written as they are read, so any number of runs fits.
    """
    if form is None:
        raise click.UsageError("give --csv or --jsonl")
    write = _csv_writer() if form == "csv" else _write_line
    for run in read(client, wanted):
        write(run)


def read(client: Client, wanted: Filter) -> Iterator[Json]:
    """Every run that fits, page by page."""
    cursor: str | None = None
    while True:
        page = client.get("/runs", limit=PAGE, cursor=cursor, **wanted)
        yield from page["items"]
        cursor = page["next"]
        if cursor is None:
            return


def _write_line(run: Json) -> None:
    click.echo(_json(run))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _csv_writer() -> Callable[[Json], None]:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)

    def write(run: Json) -> None:
        begin, end = run["started_at"], run["ended_at"]
        shown = run | {"duration_s": None if begin is None or end is None else round(end - begin, 6)}
        shown["params"] = json.dumps(run["params"], ensure_ascii=False)
        shown["result"] = (
            None if run["result_form"] is None else json.dumps(run["result"], ensure_ascii=False)
        )
        shown["message"] = _harmless(run["message"])
        writer.writerow([shown[name] for name in COLUMNS])

    return write


def _harmless(text: str) -> str:
    """The text as no spreadsheet takes it for a formula."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") else text
