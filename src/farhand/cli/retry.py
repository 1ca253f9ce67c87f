"""``farhand runs retry``: a new run in place of one that has ended."""

from __future__ import annotations

import click

from .client import Client, segment
from .following import tell_started
from .naming import run_argument
from .options import calls_server, json_option, params_option, waiting_options
from .params import read_params


@click.command()
@run_argument
@click.option(
    "--from",
    "since",
    default="failure",
    metavar="failure|start|TASK",
    help="What runs again: what did not complete, everything, or a task and all after it.",
)
@params_option
@waiting_options
@json_option
@calls_server
def retry(
    client: Client,
    run: str,
    since: str,
    given: tuple[str, ...],
    idempotency_key: str | None,
    **wanted: bool,
) -> None:
    """Retry a run that has ended, as a new run, and print its id.

    Outcomes that the run kept are replayed. -p gives single parameters another value.
    """
    source = client.get(f"/runs/{segment(run)}")
    params = read_params(client.get(f"/flows/{segment(source['flow'])}")["schema"], given) if given else {}
    body = {"from": since, "params": params, "idempotency_key": idempotency_key}
    tell_started(client, client.post(f"/runs/{segment(source['id'])}/retry", body), **wanted)
