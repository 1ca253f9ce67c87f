"""``farhand workers``: the machines that work for the server."""

from __future__ import annotations

import click

from .client import Client, segment
from .options import calls_server, json_option
from .output import moment, print_facts, print_json, print_table


@click.group()
def workers() -> None:
    """The machines that work for the server."""


@workers.command("list")
@json_option
@calls_server
def list_workers(client: Client, as_json: bool) -> None:
    """List the workers."""
    found = client.get("/workers")["items"]
    if as_json:
        print_json(found)
        return
    print_table(
        ("worker", "state", "labels", "slots", "host", "python", "last seen"),
        [
            (
                worker["name"],
                worker["state"],
                ", ".join(worker["labels"]) or "-",
                str(worker["parallel"]),
                worker["host"] or "-",
                worker["python"] or "-",
                moment(worker["last_seen_at"]),
            )
            for worker in found
        ],
    )


@workers.command()
@click.argument("worker")
@json_option
@calls_server
def show(client: Client, worker: str, as_json: bool) -> None:
    """Show one worker."""
    found = client.get(f"/workers/{segment(worker)}")
    if as_json:
        print_json(found)
        return
    print_facts(
        {
            "worker": found["name"],
            "state": found["state"],
            "labels": ", ".join(found["labels"]),
            "slots": str(found["parallel"]),
            "host": found["host"],
            "address": found["address"],
            "python": found["python"],
            "version": found["version"],
            "attached": moment(found["attached_at"]),
            "last seen": moment(found["last_seen_at"]),
        }
    )
