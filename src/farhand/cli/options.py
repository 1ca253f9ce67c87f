"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from .client import Client

P = ParamSpec("P")
R = TypeVar("R")

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The server's home; FARHAND_HOME or ~/.farhand by default.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")

params_option = click.option(
    "-p",
    "--param",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter; the value is read as the flow's signature says.",
)


insecure_option = click.option(
    "--insecure", is_flag=True, help="Send the token over http to another machine."
)

url_option = click.option(
    "--url", metavar="URL", help="The server's address; FARHAND_URL, or the home's own server."
)


def waiting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What commands that start one run have in common: when it is the same run, and whether to wait."""
    for option in (
        click.option("--follow", "-f", is_flag=True, help="Wait as well, and print the log meanwhile."),
        click.option(
            "--wait",
            is_flag=True,
            help="Wait for the end and print the result; exit 1 unless the run completes.",
        ),
        click.option("--idempotency-key", metavar="KEY", help="The same key again gives the same run again."),
    ):
        command = option(command)
    return command


def calls_server(command: Callable[Concatenate[Client, P], R]) -> Callable[..., R]:
    """Gives the command a client as its first argument, and the options that say of which server."""

    @url_option
    @home_option
    @insecure_option
    @functools.wraps(command)
    def calling(url: str | None, home: Path | None, insecure: bool, *args: Any, **options: Any) -> R:
        from .client import find

        with find(url, home, insecure) as client:
            return command(client, *args, **options)

    return calling
