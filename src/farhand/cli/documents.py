"""``farhand flows put`` and ``farhand flows versions``: flows that are documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..errors import Usage
from .client import Client, segment
from .naming import flow_argument
from .options import calls_server, json_option
from .output import moment, print_json, print_table


@click.command("put")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), metavar="FILE.json")
@click.option("--name", metavar="FLOW", help="The flow's name; else that of the file.")
@click.option("--if-match", metavar="ETAG", help="Only if the flow is still what this etag names.")
@json_option
@calls_server
def put_flow(client: Client, file: Path, name: str | None, if_match: str | None, as_json: bool) -> None:
    """Keep a document as the newest version of a declared flow. The file - is the input."""
    name = name or file.stem
    headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
    kept = client.put(f"/flows/{segment(name)}", _document(file), headers=headers)
    if as_json:
        print_json(kept)
    else:
        click.echo(f"{name} is version {kept['number']}, etag {kept['etag']}")


@click.command("versions")
@flow_argument
@json_option
@calls_server
def list_versions(client: Client, flow: str, as_json: bool) -> None:
    """List the versions of a declared flow, the newest first."""
    found = client.get(f"/flows/{segment(flow)}/versions")["items"]
    if as_json:
        print_json(found)
        return
    print_table(
        ("version", "put", "by", "nodes", "etag"),
        [
            (
                str(version["number"]),
                moment(version["created_at"]),
                version["created_by"],
                str(len(version["document"]["nodes"])),
                version["etag"],
            )
            for version in found
        ],
    )


def _document(file: Path) -> Any:
    try:
        with click.open_file(str(file), encoding="utf-8") as opened:
            return json.load(opened)
    except (OSError, ValueError, RecursionError) as error:
        raise Usage(f"{file}: {error}") from error


def node_rows(document: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The nodes of a document as rows: id, type, what each takes and gives."""
    return [
        (
            node["id"],
            node["type"],
            ", ".join(map(_shown, node.get("requires") or [])) or "-",
            ", ".join(_shown(output) for output in node.get("provides") or []) or "-",
        )
        for node in document["nodes"]
    ]


def _shown(output: Any) -> str:
    if isinstance(output, str):
        return output
    return output["name"] + (" (stream)" if output.get("stream") else "")
