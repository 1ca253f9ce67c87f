"""``farhand schedules``: what the server starts by the clock."""

from __future__ import annotations

from typing import Any

import click

from .client import Client, segment
from .naming import schedule_argument
from .options import calls_server, json_option
from .output import clip, moment, print_json, print_table


@click.group()
def schedules() -> None:
    """What the server starts by the clock."""


@schedules.command("list")
@json_option
@calls_server
def list_schedules(client: Client, as_json: bool) -> None:
    """List the schedules, with their last fire and the next one."""
    found = client.get("/schedules")["items"]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("No flow has a schedule; write one: @flow(schedule=every('15m')).", err=True)
        return
    header = ("schedule", "flow", "state", "when", "last", "next")
    print_table(header, [_row(schedule) for schedule in found])


def _row(schedule: dict[str, Any]) -> tuple[str, ...]:
    last, coming = schedule["last"], schedule["next"]
    said = moment(last["at"]) if last else "-"
    if last:
        said += " late" * last["late"]
        said += f" {last['outcome']}" * (last["outcome"] != "started")
    return (
        schedule["id"],
        schedule["flow"],
        schedule["state"],
        schedule["when"],
        said,
        clip(schedule["problem"]) or (moment(coming[0]) if coming else "-"),
    )


@schedules.command()
@schedule_argument
@json_option
@calls_server
def pause(client: Client, schedule: str, as_json: bool) -> None:
    """Let a schedule not fire until it is resumed."""
    _change(client, schedule, "pause", as_json)


@schedules.command()
@schedule_argument
@json_option
@calls_server
def resume(client: Client, schedule: str, as_json: bool) -> None:
    """Let a schedule fire again; nothing of the pause is made up for."""
    _change(client, schedule, "resume", as_json)


def _change(client: Client, schedule: str, verb: str, as_json: bool) -> None:
    found = client.post(f"/schedules/{segment(schedule)}/{verb}")
    if as_json:
        print_json(found)
        return
    coming = f", next {moment(found['next'][0])}" if found["next"] else ""
    click.echo(f"{found['id']} is {found['state']}{coming}")
