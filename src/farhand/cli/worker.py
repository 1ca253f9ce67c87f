"""``farhand worker``: the program of farhand-worker, under this command line."""

from __future__ import annotations

import sys

import click

from .program import finish


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    options_metavar="[OPTIONS]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="")
def worker(arguments: tuple[str, ...]) -> None:
    """Offer this machine to a server, until told to stop.

    All options are those of the program farhand-worker; `farhand worker --help` lists them.
    """
    from farhand_worker.__main__ import main as work
    from farhand_worker.hiding import hide

    if sys.argv[-len(arguments) - 1 :] == ["worker", *arguments]:
        hide(arguments)
    finish(work(list(arguments)) or 0)
