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


def calls_server(command: Callable[Concatenate[Client, P], R]) -> Callable[..., R]:
    """Gives the command a client as its first argument, and the options that say of which server."""

    @click.option("--url", metavar="URL", help="The server's address; FARHAND_URL, or the home's own server.")
    @home_option
    @click.option("--insecure", is_flag=True, help="Send the token over http to another machine.")
    @functools.wraps(command)
    def calling(url: str | None, home: Path | None, insecure: bool, *args: Any, **options: Any) -> R:
        from .client import find

        with find(url, home, insecure) as client:
            return command(client, *args, **options)

    return calling
