"""``farhand runs why``: what a run waits for, or how it came to its end."""

from __future__ import annotations

from typing import Any

import click

from .client import Client, segment
from .naming import run_argument
from .options import calls_server, json_option
from .output import clip, moment, print_json, print_table, took

Json = dict[str, Any]


@click.command()
@run_argument
@json_option
@calls_server
def why(client: Client, run: str, as_json: bool) -> None:
    """Say why a run waits, and which workers were considered; or how it came to its end."""
    answer = client.get(f"/runs/{segment(run)}/why")
    if as_json:
        print_json(answer)
        return
    click.echo(f"{answer['run']} is {_state(answer['state'], answer['message'])}")
    if answer["until"] is not None:
        click.echo(f"It is due {moment(answer['until'])}.")
    _print_considered(answer["considered"])
    if answer["holders"]:
        click.echo(f"Under way: {', '.join(answer['holders'])}")
    for call in answer["calls"]:
        alone = call["count"] == 1
        which = f"Its call {call['name']}" if alone else f"{call['count']} calls of {call['name']}"
        queued = "" if call["code"] == "behind" else " is queued:" if alone else " are queued:"
        click.echo(f"\n{which}{queued} {call['message']}")
        _print_considered(call["considered"])
    if answer["attempts"]:
        click.echo("")
        _print_attempts(answer["attempts"])


def _state(state: str, message: str) -> str:
    """A state and what is said of it, which may begin with it: running on box."""
    if message.startswith(f"{state} "):
        return message
    return f"{state}: {message}" if message else state


def _print_considered(refusals: list[Json]) -> None:
    if refusals:
        print_table(
            ("worker", "code", "reason", "for good"),
            [(r["worker"], r["code"], r["message"], "yes" if r["for_good"] else "no") for r in refusals],
        )


def _print_attempts(attempts: list[Json]) -> None:
    print_table(
        ("attempt", "worker", "handed over", "took", "outcome", "reason", "message"),
        [
            (
                str(attempt["number"]),
                attempt["worker"],
                moment(attempt["leased_at"]),
                took(attempt["started_at"], attempt["ended_at"]),
                attempt["outcome"] or "under way",
                attempt["reason"] or "-",
                clip(attempt["message"]),
            )
            for attempt in attempts
        ],
    )
