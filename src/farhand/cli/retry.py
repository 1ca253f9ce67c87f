"""``farhand runs retry``: a new run in place of one that has ended."""

from __future__ import annotations

import click

from .client import Client, segment
from .following import until_ended
from .options import calls_server, json_option, params_option
from .output import print_json, report, tell_line
from .params import read_params


@click.command()
@click.argument("run")
@click.option(
    "--from",
    "since",
    default="failure",
    metavar="failure|start|TASK",
    help="What runs again: what did not complete, everything, or a task and all after it.",
)
@params_option
@click.option("--idempotency-key", metavar="KEY", help="The same key again gives the same run again.")
@click.option(
    "--wait", is_flag=True, help="Wait for the end and print the result; exit 1 unless the run completes."
)
@click.option("--follow", "-f", is_flag=True, help="Wait as well, and print the log meanwhile.")
@json_option
@calls_server
def retry(
    client: Client,
    run: str,
    since: str,
    given: tuple[str, ...],
    idempotency_key: str | None,
    wait: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Retry a run that has ended, as a new run, and print its id.

    Outcomes that the run kept are replayed. -p gives single parameters another value.
    """
    source = client.get(f"/runs/{segment(run)}")
    params = read_params(client.get(f"/flows/{segment(source['flow'])}")["schema"], given) if given else {}
    body = {"from": since, "params": params, "idempotency_key": idempotency_key}
    started = client.post(f"/runs/{segment(source['id'])}/retry", body)
    if wait or follow:
        if not as_json:
            click.echo(started["id"], err=True)
        told = tell_line if follow and not as_json else None
        report(until_ended(client, started["id"], told), as_json)
    elif as_json:
        print_json(started)
    else:
        click.echo(started["id"])
