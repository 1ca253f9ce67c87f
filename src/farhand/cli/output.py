"""What commands print: JSON for programs, plain text for pipes, tables for people."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import click

from ..errors import Refused, Usage


def print_json(value: Any) -> None:
    """The value as JSON, indented."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under a header: a table where a person looks on, columns of plain text elsewhere."""
    rows = list(rows)
    if sys.stdout.isatty():
        _print_rich(header, rows)
        return
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _print_rich(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in header:
        table.add_column(name, overflow="fold")
    console = Console(highlight=False)
    for row in rows:
        cells = row if console.width >= _WIDE else [_MOMENT.sub(r"\1", cell) for cell in row]
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    console.print(table)


_WIDE = 120
"""From so many columns on, moments are shown with their date."""

_MOMENT = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \((.*)\)$")


_STYLES = {
    "completed": "green",
    "online": "green",
    "failed": "red",
    "crashed": "red",
    "lost": "red",
    "running": "blue",
    "starting": "blue",
    "queued": "yellow",
    "waiting": "yellow",
    "cancelling": "yellow",
    "cancelled": "dim",
    "offline": "dim",
}


def print_facts(facts: Mapping[str, str]) -> None:
    """Names and what they are, one a line; empty ones are left out."""
    width = max(len(name) for name in facts)
    for name, fact in facts.items():
        if fact:
            click.echo(f"{name.ljust(width)}  {fact}")


def moment(at: float | None) -> str:
    """A moment in local time, and how long ago that was (or how far off it is)."""
    if at is None:
        return "-"
    local = datetime.fromtimestamp(at).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S} ({_relative(time.time() - at)})"


def _relative(seconds: float) -> str:
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time in its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def took(begin: float | None, end: float | None) -> str:
    """How long something took, or has taken so far."""
    if begin is None:
        return "-"
    seconds = (end or time.time()) - begin
    return f"{seconds:.2f} s" if seconds < 120 else span(seconds)


def clip(text: str, length: int = 60) -> str:
    """The first line of a text, or as much of it as fits."""
    line = text.partition("\n")[0]
    return line if len(line) <= length else f"{line[: length - 1]}…"


def said(progress: Mapping[str, Any] | None) -> str:
    """How far something has come: done of total, the share, and the words that came with it."""
    if progress is None:
        return ""
    done, total, message = progress["done"], progress.get("total"), progress.get("message")
    share = f"{done:g}" if total is None else f"{done:g} of {total:g} ({done / total:.0%})"
    return f"{share}, {message}" if message else share


def cell(value: Any) -> str:
    """A parameter or result in a table: text as it is, anything else as JSON, as much of it as fits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return clip(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 40)


def compact(value: Any) -> str:
    """A value as JSON in one line, the beginning of it when it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 500 else f"{text[:500]}… (--json shows all of it)"


def tell_line(line: Mapping[str, Any]) -> None:
    """A line of a run's log."""
    click.echo(line["text"])


def tell_dated_line(line: Mapping[str, Any]) -> None:
    """The same with its moment, in the time of this machine, and its level."""
    at = datetime.fromtimestamp(line["at"])
    click.echo(f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03} {line['level']:<7} {line['text']}")


def agree(question: str) -> None:
    """Ask, on stderr. Raises `Refused` when the answer is no, `Usage` when there is nobody to ask."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise  # Ctrl-C
        raise Usage("nobody is there to be asked; give --yes where that is meant") from None
    if not agreed:
        raise Refused("nothing was done, as you answered no")


def report(run: Mapping[str, Any], as_json: bool) -> NoReturn:
    """Tell how a run ended, and end the command with it: 0 when it completed, else 1.

    The result goes to standard output; what else there is to say, to stderr.
    """
    if as_json:
        print_json(run)
    else:
        traceback = (run["error"] or {}).get("traceback", "")
        if '\n  File "' in traceback:  # else it is the message and nothing more
            click.echo(traceback.rstrip(), err=True)
        why = f": {run['message']}" if run["message"] and run["state"] != "completed" else ""
        click.echo(f"{run['state']} after {took(run['started_at'], run['ended_at'])}{why}", err=True)
        if run["state"] == "completed":
            _print_result(run["result"], run["result_form"])
    raise click.exceptions.Exit(0 if run["state"] == "completed" else 1)


def _print_result(result: Any, form: str | None) -> None:
    """The result as JSON; one that is None, or not there, prints nothing."""
    if result is None:
        return
    if form == "json":
        click.echo(json.dumps(result, ensure_ascii=False))
    else:
        kind = "JSON" if result.get("enc") == "json" else "a Python object"
        click.echo(f"the result is {kind} of {result['size']:,} bytes, kept on the server", err=True)
