"""``farhand tokens``: credentials for machines and people."""

from __future__ import annotations

import re
import time
from typing import Any

import click

from ..errors import Usage
from ..model import NAME_PATTERN
from ..sdk.durations import seconds
from .client import Client, segment
from .options import calls_server, json_option
from .output import agree, moment, print_json, print_table


@click.group()
def tokens() -> None:
    """Credentials for machines and people."""


@tokens.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["admin", "operator", "viewer", "worker"]),
    default="worker",
    help="What it may do; worker by default.",
)
@click.option("--labels", default="", metavar="A,B", help="What a worker is allowed to be, such as gpu.")
@click.option("--expires", default="365d", metavar="TIME", help="How long it is valid, such as 30d.")
@json_option
@calls_server
def create(client: Client, name: str, role: str, labels: str, expires: str, as_json: bool) -> None:
    """Mint a token for NAME. It goes to stdout, this once; the server does not keep it."""
    wanted = {
        "name": token_name(name),
        "role": role,
        "labels": [token_label(label.strip()) for label in labels.split(",") if label.strip()],
        "expires_s": duration("--expires", expires),
    }
    minted = client.post("/workers/tokens", wanted)
    if as_json:
        print_json(minted)
        return
    click.echo(minted["token"])
    click.echo(f"{role} {name}, id {minted['jti']}, until {moment(minted['expires_at'])}", err=True)


def duration(option: str, given: str) -> float:
    """Seconds, of what was given with ``option``. Raises `Usage`."""
    try:
        found_s = seconds(given)
    except ValueError as error:
        raise Usage(f"{option}: {given!r} {error}") from error
    if found_s <= 0:
        raise Usage(f"{option}: {given!r} is no time at all; give one like 30d")
    return found_s


def token_name(name: str) -> str:
    """The name, if a token can have it. Raises `Usage`."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise Usage(
            f"{name!r} cannot be the name of a token: it takes lower-case letters and digits, after the first"
            " one also '.', '_' and '-', at most 63 in all"
        )
    return name


def token_label(label: str) -> str:
    """The label, if a token can have it. Raises `Usage`."""
    if len(label.split()) != 1:
        raise Usage(f"--labels: {label!r} has a space in it; several labels are separated by commas")
    return label


@tokens.command("list")
@json_option
@calls_server
def list_tokens(client: Client, as_json: bool) -> None:
    """List every token that was minted, without its secret."""
    found = client.get("/workers/tokens")["items"]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("No token has been minted; `farhand tokens create NAME` makes one.", err=True)
        return
    print_table(
        ("id", "name", "role", "labels", "state", "issued", "expires", "last used", "from"),
        [
            (
                token["jti"],
                token["name"],
                token["role"],
                ", ".join(token["labels"]) or "-",
                _state(token),
                moment(token["issued_at"]),
                moment(token["expires_at"]),
                moment(token["last_used_at"]),
                token["address"] or "-",
            )
            for token in found
        ],
    )


def _state(token: dict[str, Any]) -> str:
    if token["revoked_at"] is not None:
        return "revoked"
    return "valid" if token["expires_at"] > time.time() else "expired"


@tokens.command()
@click.argument("id")
@json_option
@calls_server
def revoke(client: Client, id: str, as_json: bool) -> None:
    """End a token's life; the workers, streams and consoles that use it are dropped at once."""
    answer = client.post(f"/workers/tokens/{segment(id)}/revoke")
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{id} is revoked" if answer["changed"] else f"{id} was revoked before")


@tokens.command("rotate-key")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@calls_server
def rotate_key(client: Client, yes: bool, as_json: bool) -> None:
    """Revoke every token by signing with a new key.

    Workers are dropped and consoles signed out; the admin's own token and the server's own processors go on.
    """
    if not yes:
        agree("Every token of this server ends. Go on?")
    answer = client.post("/workers/tokens/rotate-key")
    if as_json:
        print_json(answer)
    else:
        click.echo(f"a new key signs from now on; {answer['revoked']} tokens ended")
