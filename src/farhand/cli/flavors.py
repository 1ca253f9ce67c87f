"""``farhand flavors``: named sizes, for flows and tasks to ask for."""

from __future__ import annotations

from typing import Any

import click

from .client import Client, segment
from .options import calls_server, json_option
from .output import moment, print_json, print_table


@click.group()
def flavors() -> None:
    """Named sizes, for flows and tasks to ask for."""


@flavors.command("set")
@click.argument("name")
@click.option("--cpus", type=int, metavar="N", help="Processor cores.")
@click.option("--gpus", type=int, metavar="N", help="GPUs; 0 shows none.")
@click.option("--ram", metavar="SIZE", help="Memory: megabytes, or text such as 64G.")
@json_option
@calls_server
def set_flavor(
    client: Client, name: str, cpus: int | None, gpus: int | None, ram: str | None, as_json: bool
) -> None:
    """Call a size NAME. What is started from then on with that flavor asks for it."""
    answer = client.put(f"/flavors/{segment(name)}", {"cpus": cpus, "gpus": gpus, "ram": ram})
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{name} is {'set' if answer['created'] else 'changed'}")


@flavors.command("list")
@json_option
@calls_server
def list_flavors(client: Client, as_json: bool) -> None:
    """List the flavors with their sizes."""
    found = client.get("/flavors")["items"]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("There is no flavor; `farhand flavors set NAME --cpus N` makes one.", err=True)
        return
    print_table(("flavor", "cpus", "gpus", "ram", "set", "by"), [_row(flavor) for flavor in found])


def _row(flavor: dict[str, Any]) -> tuple[str, ...]:
    cpus, gpus, ram_mb = ("-" if flavor[k] is None else str(flavor[k]) for k in ("cpus", "gpus", "ram_mb"))
    ram = ram_mb if ram_mb == "-" else f"{ram_mb}M" if int(ram_mb) % 1024 else f"{int(ram_mb) // 1024}G"
    return flavor["name"], cpus, gpus, ram, moment(flavor["updated_at"]), flavor["updated_by"]


@flavors.command()
@click.argument("name")
@json_option
@calls_server
def delete(client: Client, name: str, as_json: bool) -> None:
    """Forget a flavor."""
    answer = client.delete(f"/flavors/{segment(name)}")
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{name} is deleted")
