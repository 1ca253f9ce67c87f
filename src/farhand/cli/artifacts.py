"""``farhand artifacts``: the files that runs saved."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ..errors import NotFound, Usage
from .client import Client, segment
from .naming import run_argument
from .options import calls_server, json_option
from .output import moment, print_json, print_table

Json = dict[str, Any]


@click.group()
def artifacts() -> None:
    """The files that runs saved."""


@artifacts.command("list")
@run_argument
@json_option
@calls_server
def list_artifacts(client: Client, run: str, as_json: bool) -> None:
    """List the files that a run saved."""
    found = client.get(f"/runs/{segment(run)}/artifacts")["items"]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("The run saved no file.", err=True)
        return
    print_table(
        ("name", "size", "type", "task", "saved", "digest"),
        [
            (
                saved["name"],
                f"{saved['size']:,}",
                saved["media_type"],
                saved["task"] or "-",
                moment(saved["created_at"]),
                saved["digest"].removeprefix("sha256:")[:12],
            )
            for saved in found
        ],
    )


@artifacts.command()
@run_argument
@click.argument("name")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Where to write it; its own name in this directory by default, - is standard output.",
)
@json_option
@calls_server
def get(client: Client, run: str, name: str, output: Path | None, as_json: bool) -> None:
    """Fetch a file that a run saved; of several with one name the last."""
    if as_json and str(output) == "-":
        raise Usage("--output - writes the file to standard output, where --json would write too")
    found = client.get(f"/runs/{segment(run)}/artifacts")["items"]
    saved = next((item for item in reversed(found) if item["name"] == name), None)
    if saved is None:
        known = ", ".join(dict.fromkeys(item["name"] for item in found)) or "none"
        raise NotFound(f"run {run} has no artifact {name!r}; it has: {known}")
    if str(output) == "-":
        for part in client.download(f"/artifacts/{saved['digest']}"):
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return
    target = output or Path(Path(name).name)
    if target.is_dir():
        target = target / Path(name).name
    _write(client, saved, target)
    if as_json:
        print_json(saved | {"path": str(target)})
    else:
        click.echo(str(target))


def _write(client: Client, saved: Json, target: Path) -> None:
    """The file appears whole or not at all."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("wb") as file:
            for part in client.download(f"/artifacts/{saved['digest']}"):
                file.write(part)
        partial.replace(target)
    except OSError as error:
        raise Usage(f"{target} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
