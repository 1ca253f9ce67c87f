"""``farhand variables``: plain values that jobs may read."""

from __future__ import annotations

import json
from typing import Any

import click

from .client import Client, segment
from .options import calls_server, json_option
from .output import clip, moment, print_json, print_table


@click.group()
def variables() -> None:
    """Plain values that jobs may read."""


@variables.command("set")
@click.argument("name")
@click.argument("value")
@json_option
@calls_server
def set_variable(client: Client, name: str, value: str, as_json: bool) -> None:
    """Keep VALUE under NAME. It is read as JSON where it is JSON, else taken as text."""
    answer = client.put(f"/variables/{segment(name)}", {"value": _read(value)})
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{name} is {'set' if answer['created'] else 'changed'}")


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


@variables.command()
@click.argument("name")
@json_option
@calls_server
def get(client: Client, name: str, as_json: bool) -> None:
    """Print the value of a variable: text as it is, anything else as JSON."""
    found = client.get(f"/variables/{segment(name)}")
    if as_json:
        print_json(found)
    elif isinstance(found["value"], str):
        click.echo(found["value"])
    else:
        click.echo(json.dumps(found["value"], ensure_ascii=False))


@variables.command("list")
@json_option
@calls_server
def list_variables(client: Client, as_json: bool) -> None:
    """List the variables with their values."""
    found = client.get("/variables")["items"]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("There is no variable; `farhand variables set NAME VALUE` makes one.", err=True)
        return
    print_table(
        ("variable", "value", "set", "by"),
        [
            (
                v["name"],
                clip(json.dumps(v["value"], ensure_ascii=False)),
                moment(v["updated_at"]),
                v["updated_by"],
            )
            for v in found
        ],
    )


@variables.command()
@click.argument("name")
@json_option
@calls_server
def delete(client: Client, name: str, as_json: bool) -> None:
    """Forget a variable."""
    answer = client.delete(f"/variables/{segment(name)}")
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{name} is deleted")
