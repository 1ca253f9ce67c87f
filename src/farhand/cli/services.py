"""``farhand services``: the server processes that are kept on workers."""

from __future__ import annotations

import shlex
from typing import Any

import click

from .client import Client, segment
from .following import read_lines
from .naming import service_argument
from .options import calls_server, json_option
from .output import clip, moment, print_facts, print_json, print_table, tell_line

Json = dict[str, Any]


@click.group()
def services() -> None:
    """The server processes that are kept on workers."""


@services.command("list")
@json_option
@calls_server
def list_services(client: Client, as_json: bool) -> None:
    """List the services."""
    found = client.get("/services")["items"]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("No flow needs a service; write one: @flow(services=[Service(…)]).", err=True)
        return
    header = ("service", "state", "worker", "url", "since", "message")
    print_table(header, [_row(service) for service in found])


def _row(service: Json) -> tuple[str, ...]:
    return (
        service["name"],
        _state(service),
        service["worker"] or "-",
        service["url"] or "-",
        moment(service["since"]),
        clip(service["message"]),
    )


def _state(service: Json) -> str:
    plain = service["state"] in ("healthy", "stopped") or not service["reason"]
    return service["state"] if plain else f"{service['state']} ({service['reason']})"


@services.command()
@service_argument
@json_option
@calls_server
def show(client: Client, service: str, as_json: bool) -> None:
    """Show one service."""
    found = client.get(f"/services/{segment(service)}")
    if as_json:
        print_json(found)
        return
    spec = found["spec"]
    print_facts(
        {
            "service": found["name"],
            "state": f"{_state(found)}: {found['message']}",
            "since": moment(found["since"]),
            "worker": found["worker"] or "",
            "url": found["url"],
            "through the server": f"{client.url}/{found['path']}",
            "flows": ", ".join(found["flows"]),
            "command": shlex.join(spec["command"]),
            "port": "a free one" if spec["port"] is None else str(spec["port"]),
            "health": spec["health"] or "not asked: it is healthy once it listens",
            "weights": spec["weights"],
            "secrets": ", ".join(found["secrets"]),
        }
    )
    if found["tail"]:
        click.echo("\nThe end of what it wrote before it ended last:")
        click.echo(found["tail"].rstrip("\n"))


@services.command()
@service_argument
@json_option
@calls_server
def start(client: Client, service: str, as_json: bool) -> None:
    """Start SERVICE that was stopped, or try it again when it is down."""
    _order(client, service, "start", as_json)


@services.command()
@service_argument
@json_option
@calls_server
def stop(client: Client, service: str, as_json: bool) -> None:
    """Stop SERVICE, until somebody starts it."""
    _order(client, service, "stop", as_json)


def _order(client: Client, service: str, verb: str, as_json: bool) -> None:
    found = client.post(f"/services/{segment(service)}/{verb}")
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['name']} is {_state(found)}: {found['message']}")


@services.command()
@service_argument
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Only lines after this number.")
@click.option("--follow", "-f", is_flag=True, help="Print lines as they come, until the service is ended.")
@json_option
@calls_server
def logs(client: Client, service: str, after: int, follow: bool, as_json: bool) -> None:
    """Print what SERVICE wrote, in all its starts."""
    if follow and as_json:
        raise click.UsageError("--follow prints lines as they come; it does not go with --json")
    if follow:
        _follow(client, service, after)
        return
    lines: list[Json] = []
    read_lines(client, service, after, lines.append if as_json else tell_line, "services")
    if as_json:
        print_json(lines)


def _follow(client: Client, service: str, after: int) -> None:
    """Print lines until there can be no more: the service was stopped, or is down."""
    for _ in client.follow(f"service:{service}"):
        over = client.get(f"/services/{segment(service)}")["state"] in ("stopped", "down")
        after = read_lines(client, service, after, tell_line, "services")
        if over:
            return
