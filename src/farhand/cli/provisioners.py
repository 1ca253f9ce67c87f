"""``farhand provisioners``: what can start machines, and whether it would."""

from __future__ import annotations

from typing import Any

import click

from .client import Client, segment
from .options import calls_server, json_option
from .output import print_json, print_table
from .program import finish

_TEST_S = 300.0


@click.group()
def provisioners() -> None:
    """What can start machines: a batch scheduler, or any script."""


@provisioners.command("list")
@json_option
@calls_server
def list_provisioners(client: Client, as_json: bool) -> None:
    """List the provisioners, and the machines they were asked for."""
    found = client.get("/provisioners")
    if as_json:
        print_json(found)
        return
    if found["trouble"]:
        click.echo(f"What is configured now is not taken: {found['trouble']}", err=True)
    if not found["provisioners"]:
        click.echo("There is no provisioner; docs/slurm.md says how to have one.", err=True)
        return
    print_table(
        ("provisioner", "type", "at", "profiles", "trouble"),
        [
            (one["name"], one["type"], one["at"], ", ".join(map(_profile, one["profiles"])), one["trouble"])
            for one in found["provisioners"]
        ],
    )
    if found["machines"]:
        click.echo()
        print_table(
            ("machine", "state", "for", "job", "reason"),
            [_machine(machine) for machine in found["machines"]],
        )


@provisioners.command()
@click.argument("name")
@click.option("--submit", is_flag=True, help="Submit a real job as well, of a minute at most.")
@json_option
@calls_server
def test(client: Client, name: str, submit: bool, as_json: bool) -> None:
    """Try everything a machine of NAME takes, up to its submission; exits 1 where something fails."""
    checks = client.post(f"/provisioners/{segment(name)}/test", {"submit": submit}, _TEST_S)["items"]
    if as_json:
        print_json(checks)
    for check in checks if not as_json else ():
        said = f": {check['said']}" if check["said"] else ""
        click.echo(f"{'ok' if check['ok'] else 'FAILED'}  {check['what']}{said}")
    if not all(check["ok"] for check in checks):
        finish(1)


def _profile(profile: dict[str, Any]) -> str:
    labels = f" ({', '.join(profile['labels'])})" if profile["labels"] else ""
    return f"{profile['name']}{labels}"


def _machine(machine: dict[str, Any]) -> tuple[str, ...]:
    job, reason = machine["job"] or "-", machine["reason"] or "-"
    return machine["name"], machine["state"], f"{machine['outstanding_s']:.0f} s", job, reason
