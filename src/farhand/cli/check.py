"""``farhand check``: what a server would make of a directory."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import json_option
from .output import clip, print_facts, print_json, print_table
from .program import finish

if TYPE_CHECKING:
    from ..engine.packing import Packed
    from ..engine.projects import Checked


@click.command()
@click.argument("directory", default=".", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
def check(directory: Path, as_json: bool) -> None:
    """Import the flows of a directory, and say what a server would offer.

    Lists the flows with their parameters and schedules, the files that go into the bundle, those that are
    left out, and everything that is wrong; the exit code is 1 when something is.
    """
    from ..engine.projects import check as checked_by

    packed = packed_of(directory.resolve())
    checked = checked_by(packed.name, packed.offer, [])
    if as_json:
        print_json(_document(packed, checked))
    else:
        _tell(packed, checked)
    finish(1 if checked.troubles else 0)


def packed_of(root: Path) -> Packed:
    """The directory, inspected and packed, under the setting ``inspect_s``."""
    from .. import config
    from ..engine.packing import pack_whole

    return asyncio.run(pack_whole(root, config.load(root=root).inspect_s))


def tell_troubles(checked: Checked) -> None:
    """Name everything that is wrong, a line each, with the end of its traceback."""
    for trouble in checked.troubles:
        click.echo(f"{trouble.file}: {trouble.error}", err=True)
        place = [line for line in trouble.traceback.splitlines() if line.startswith("  File ")]
        if place:
            click.echo(place[-1], err=True)


def _tell(packed: Packed, checked: Checked) -> None:
    offer = packed.offer
    print_facts(
        {
            "project": packed.name,
            "bundle": f"{offer.bundle} ({offer.size} bytes, {offer.files} file{'s' * (offer.files != 1)})",
        }
    )
    if checked.flows:
        click.echo("")
        rows = [
            (
                flow.name,
                ", ".join(flow.schema.get("properties", {})) or "-",
                "; ".join(_when(s.spec) for s in checked.schedules if s.flow == flow.name) or "-",
                flow.file,
                clip(flow.description),
            )
            for flow in checked.flows
        ]
        print_table(("flow", "parameters", "schedule", "file", "description"), rows)
    if packed.sizes:
        click.echo("")
        print_table(("in the bundle", "bytes"), [(name, str(size)) for name, size in packed.sizes.items()])
    if offer.left_out:
        click.echo("")
        rows = [(item.file, str(item.size)) for item in offer.left_out]
        print_table(("left out: too large; name it under include", "bytes"), rows)
    if checked.troubles:
        click.echo("")
        tell_troubles(checked)


def _when(spec: dict[str, Any]) -> str:
    from .. import timing

    return str(timing.read(spec))


def _document(packed: Packed, checked: Checked) -> dict[str, Any]:
    return {
        "project": packed.name,
        "bundle": packed.offer.bundle,
        "flows": [asdict(flow) for flow in checked.flows],
        "schedules": [asdict(schedule) for schedule in checked.schedules],
        "files": packed.sizes,
        "left_out": [asdict(item) for item in packed.offer.left_out],
        "errors": [asdict(trouble) for trouble in checked.troubles],
    }
