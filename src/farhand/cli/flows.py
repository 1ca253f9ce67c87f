"""``farhand flows``: what the server can run."""

from __future__ import annotations

from typing import Any

import click

from .client import Client, segment
from .deleting import delete_flow
from .documents import list_versions, node_rows, put_flow
from .naming import flow_argument
from .options import calls_server, json_option
from .output import clip, moment, print_facts, print_json, print_table


@click.group()
def flows() -> None:
    """What the server can run."""


@flows.command("list")
@json_option
@calls_server
def list_flows(client: Client, as_json: bool) -> None:
    """List the flows."""
    found = client.get("/flows")["items"]
    if as_json:
        print_json(found)
        return
    if found:
        _print_flows(found)
    else:
        click.echo("The server has no flows; serve a directory that has some.", err=True)
    for project in client.get("/projects")["items"]:
        for trouble in project["errors"]:
            click.echo(f"{trouble['file']} is not offered: {trouble['error']}", err=True)


def _print_flows(found: list[dict[str, Any]]) -> None:
    print_table(
        ("flow", "project", "parameters", "description"),
        [
            (
                flow["name"],
                flow["project"],
                ", ".join(flow["schema"].get("properties", {})) or "-",
                clip(flow["description"]) if flow["present"] else "(its code is gone)",
            )
            for flow in found
        ],
    )


@flows.command()
@flow_argument
@json_option
@calls_server
def show(client: Client, flow: str, as_json: bool) -> None:
    """Show one flow and its parameters."""
    found = client.get(f"/flows/{segment(flow)}")
    if as_json:
        print_json(found)
        return
    ask = found["ask"]
    print_facts(
        {
            "flow": found["name"],
            "description": found["description"],
            "entry": found["entry"],
            "version": str(found["version"] or ""),
            "device": ", ".join(ask["labels"]),
            "runs on": ask["runs_on"],
            "code": found["fingerprint"],
            "seen": moment(found["updated_at"]),
        }
    )
    needed = set(found["schema"].get("required", []))
    rows = [
        (name, str(shape.get("type", "any")), "needed" if name in needed else repr(shape.get("default")))
        for name, shape in found["schema"].get("properties", {}).items()
    ]
    if rows:
        click.echo("")
        print_table(("parameter", "type", "default"), rows)
    if found["document"] is not None:
        click.echo("")
        print_table(("node", "type", "takes", "gives"), node_rows(found["document"]))


for command in (put_flow, list_versions, delete_flow):
    flows.add_command(command)
