"""``farhand audit``: who changed what."""

from __future__ import annotations

from typing import Any

import click

from .client import Client
from .options import calls_server, json_option
from .output import clip, moment, print_json, print_table


@click.group()
def audit() -> None:
    """Who changed what."""


@audit.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, metavar="N", help="How many at most.")
@click.option("--cursor", metavar="NEXT", help="Where the list before ended; --json tells it.")
@click.option("--actor", metavar="NAME", help="Only what this token, worker or console asked for.")
@click.option("--action", metavar="ACTION", help="Only this action, such as cancel_run.")
@json_option
@calls_server
def list_audit(
    client: Client, limit: int, cursor: str | None, actor: str | None, action: str | None, as_json: bool
) -> None:
    """List changes, the newest first: who, from where, when, what, and what came of it."""
    page = client.get("/audit", limit=limit, cursor=cursor, actor=actor, action=action)
    if as_json:
        print_json(page)
        return
    print_table(
        ("when", "who", "role", "from", "action", "about", "outcome", "details"),
        [
            (
                moment(entry["at"]),
                entry["actor"],
                entry["role"],
                entry["address"] or "-",
                entry["action"],
                entry["subject"] or "-",
                entry["outcome"],
                clip(_told(entry["details"])),
            )
            for entry in page["items"]
        ],
    )


def _told(details: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in details.items()) or "-"
