"""``farhand runs compare``: runs side by side."""

from __future__ import annotations

import json
from typing import Any

import click

from .client import Client, segment
from .naming import run_names
from .options import calls_server, json_option
from .output import clip, print_json, print_table, took

Json = dict[str, Any]
ABSENT = "-"


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN [RUN…]", shell_complete=run_names)
@json_option
@calls_server
def compare(client: Client, runs: tuple[str, ...], as_json: bool) -> None:
    """Show runs side by side: parameters, results, metrics and durations.

    What differs between the runs is marked with a star.
    """
    if len(runs) < 2:
        raise click.UsageError("give two runs or more")
    found = [look(client, run) for run in runs]
    if as_json:
        print_json(found)
        return
    rows = [(_mark(values) + name, *values) for name, values in comparison(found)]
    print_table(("", *(run["id"] for run in found)), rows)


def look(client: Client, run: str) -> Json:
    """A run and the summaries of its series."""
    found: Json = client.get(f"/runs/{segment(run)}")
    found["metrics"] = client.get(f"/runs/{segment(found['id'])}/metrics/summary")["items"]
    return found


def comparison(runs: list[Json]) -> list[tuple[str, list[str]]]:
    """One row a fact: its name and what it is in each run."""
    rows = [(name, [str(run[name] or ABSENT) for run in runs]) for name in ("flow", "state", "worker")]
    rows.append(("took", [took(run["started_at"], run["ended_at"]) for run in runs]))
    rows.append(("code", [run["fingerprint"].removeprefix("sha256:")[:12] or ABSENT for run in runs]))
    rows += _columns("param", [run["params"] for run in runs])
    rows += _columns("result", [_result(run) for run in runs])
    series = [{s["name"]: s for s in run["metrics"]} for run in runs]
    for name in _names(series):
        for part, field in (("last", "last"), ("min", "low"), ("max", "high")):
            values = [_text(of[name][field]) if name in of else ABSENT for of in series]
            rows.append((f"{name} {part}", values))
    return rows


def _columns(kind: str, values: list[Json]) -> list[tuple[str, list[str]]]:
    return [
        (f"{kind} {name}".rstrip(), [_text(of[name]) if name in of else ABSENT for of in values])
        for name in _names(values)
    ]


def _names(values: list[Json]) -> list[str]:
    """Every name, in the order in which the runs have them."""
    return list(dict.fromkeys(name for of in values for name in of))


def _result(run: Json) -> Json:
    """The result by its names; one without names has the empty one."""
    if run["result_form"] is None:
        return {}
    return run["result"] if isinstance(run["result"], dict) else {"": run["result"]}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return clip(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 40)


def _mark(values: list[str]) -> str:
    return "  " if len(set(values)) == 1 else "* "
