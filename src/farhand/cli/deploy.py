"""``farhand deploy``: a directory of flows to a server elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from .client import Client
from .options import calls_server, json_option
from .output import print_json
from .program import finish


@click.command()
@click.argument("directory", default=".", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
@calls_server
def deploy(client: Client, directory: Path, as_json: bool) -> None:
    """Inspect a directory here, and give its flows to a server.

    Nothing is deployed while something in the directory is wrong. The token's role is operator or admin.
    """
    import msgspec

    from ..engine.projects import check
    from .check import packed_of, tell_troubles

    packed = packed_of(directory.resolve())
    checked = check(packed.name, packed.offer, [])
    if checked.troubles:
        tell_troubles(checked)
        if as_json:
            print_json({"errors": [asdict(trouble) for trouble in checked.troubles]})
        click.echo("farhand: nothing was deployed", err=True)
        finish(1)
    client.put_bytes(f"/artifacts/{packed.offer.bundle}", packed.content)
    for fingerprint, manifest in packed.manifests.items():
        client.put_bytes(f"/artifacts/{fingerprint}", manifest)
    project = client.put(f"/projects/{packed.name}", msgspec.to_builtins(packed.offer))
    if as_json:
        print_json(project)
        return
    names = ", ".join(flow.name for flow in packed.offer.flows) or "no flow"
    click.echo(f"{client.url} has project {project['name']}: {names}")
