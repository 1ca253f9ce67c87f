"""``farhand signin``: a link to the console."""

from __future__ import annotations

import click

from .client import Client
from .options import calls_server, json_option
from .output import print_json


@click.command()
@click.option(
    "--role",
    type=click.Choice(["admin", "operator", "viewer"]),
    default="admin",
    help="What whoever opens it may do; admin by default.",
)
@json_option
@calls_server
def signin(client: Client, role: str, as_json: bool) -> None:
    """Print a link that signs a browser in to the console, once."""
    link = f"{client.url}/{client.post('/signin-links', {'role': role})['path']}"
    if as_json:
        print_json({"url": link})
    else:
        click.echo(link)
