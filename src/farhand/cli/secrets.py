"""``farhand secrets``: values that jobs may read and nobody is shown."""

from __future__ import annotations

import sys

import click

from ..errors import Usage
from .client import Client, segment
from .options import calls_server, json_option
from .output import moment, print_json, print_table


@click.group()
def secrets() -> None:
    """Values that jobs may read and nobody is shown."""


@secrets.command("set")
@click.argument("name")
@json_option
@calls_server
def set_secret(client: Client, name: str, as_json: bool) -> None:
    """Keep a value under NAME. It is asked for, or read from standard input; never an argument.

    One line end at the end of standard input is left out.
    """
    answer = client.put(f"/secrets/{segment(name)}", {"value": _value()})
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{name} is {'set' if answer['created'] else 'changed'}")


def _value() -> str:
    if sys.stdin.isatty():
        return click.prompt("Value", hide_input=True, confirmation_prompt=True, err=True)
    try:
        return sys.stdin.read().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Usage("a secret is text; encode anything else, as base64 for example") from None


@secrets.command("list")
@json_option
@calls_server
def list_secrets(client: Client, as_json: bool) -> None:
    """List the secrets by name; never a value."""
    found = client.get("/secrets")["items"]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("There is no secret; `farhand secrets set NAME` makes one.", err=True)
        return
    print_table(
        ("secret", "set", "by", "last read"),
        [(s["name"], moment(s["updated_at"]), s["updated_by"], moment(s["last_read_at"])) for s in found],
    )


@secrets.command()
@click.argument("name")
@json_option
@calls_server
def delete(client: Client, name: str, as_json: bool) -> None:
    """Forget a secret."""
    answer = client.delete(f"/secrets/{segment(name)}")
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{name} is deleted")
