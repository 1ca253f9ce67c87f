"""``farhand sweep``: a flow once for every combination of parameters."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from typing import Any

import click

from ..errors import StoreClosed, Unreachable
from ..lifecycle import RUN, is_terminal
from ..sdk.ids import new_id
from .client import Client, segment
from .export import read
from .grid import combinations
from .naming import flow_argument
from .options import calls_server, json_option, params_option
from .output import cell, clip, print_json, print_table, took
from .program import finish

Json = dict[str, Any]
_EVERY_S = 0.5
"""Progress is asked for at most this often."""


@click.command()
@flow_argument
@params_option
@click.option("--name", metavar="NAME", help="The sweep's name; the same again finds the runs it has.")
@click.option("--dry-run", is_flag=True, help="Print the combinations and start nothing.")
@click.option("--no-wait", is_flag=True, help="Start the runs and print the sweep's name.")
@json_option
@calls_server
def sweep(
    client: Client,
    flow: str,
    given: tuple[str, ...],
    name: str | None,
    dry_run: bool,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Start a flow once for every combination of parameters.

    The runs are waited for and shown in a table.

    A parameter may have several values: -p lr=0.1,0.01 -p seed=1..5 makes ten runs. Exit 1 when any of
    them does not complete. Ctrl-C ends the waiting and not the runs.
    """
    combos = combinations(client.get(f"/flows/{segment(flow)}")["schema"], given)
    if dry_run:
        _print_combinations(combos, as_json)
        return
    name = name or f"sweep-{new_id()[:18]}"
    ids = [_start(client, flow, name, params) for params in combos]
    if no_wait:
        if as_json:
            print_json({"sweep": name, "runs": ids})
        else:
            click.echo(name)
        return
    click.echo(f"{name}: {len(ids)} run{'s' * (len(ids) != 1)} of {flow}", err=True)
    _Progress(client, name, len(set(ids))).follow()
    wanted = set(ids)
    runs = sorted(
        (run for run in read(client, {"sweep": name}) if run["id"] in wanted), key=lambda r: r["id"]
    )
    if as_json:
        print_json({"sweep": name, "runs": runs})
    else:
        _print_runs(client, runs, [key for key in combos[0] if len({str(c[key]) for c in combos}) > 1])
    finish(0 if all(run["state"] == "completed" for run in runs) else 1)


def _start(client: Client, flow: str, name: str, params: Json) -> str:
    """Started again under the same name, a combination is the run it was."""
    text = json.dumps(params, sort_keys=True)
    key = f"{name}.{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    body = {"params": params, "sweep": name, "idempotency_key": key}
    return client.post(f"/flows/{segment(flow)}/runs", body)["id"]


def _print_combinations(combos: list[Json], as_json: bool) -> None:
    if as_json:
        print_json(combos)
        return
    names = list(combos[0])
    print_table(names or ("run",), [[cell(combo[name]) for name in names] or ["1"] for combo in combos])
    click.echo(f"{len(combos)} run{'s' * (len(combos) != 1)}", err=True)


class _Progress:
    """Tells on stderr how a sweep goes on: a line that is written over, or one an ended run."""

    def __init__(self, client: Client, name: str, count: int) -> None:
        self._client = client
        self._name = name
        self._count = count
        self._told: set[str] = set()
        self._live = sys.stderr.isatty()

    def follow(self) -> None:
        """Until every run has ended."""
        with closing(self._client.follow()) as changes:
            for _ in changes:
                # A server that has just gone away is waited for by the stream.
                with suppress(Unreachable, StoreClosed):
                    if self._look():
                        return
                time.sleep(_EVERY_S)

    def _look(self) -> bool:
        runs = list(read(self._client, {"sweep": self._name}))
        ended = [run for run in runs if is_terminal(RUN, run["state"])]
        if self._live:
            states = Counter(run["state"] for run in runs)
            told = ", ".join(f"{count} {state}" for state, count in states.items())
            click.echo(f"\r\x1b[K{len(ended)} of {self._count}: {told}", err=True, nl=False)
            if len(ended) >= self._count:
                click.echo("", err=True)
        else:
            for run in reversed([run for run in ended if run["id"] not in self._told]):
                self._told.add(run["id"])
                done = f"{len(self._told)} of {self._count}"
                click.echo(f"{done}: {run['id']} {run['state']} {json.dumps(run['params'])}", err=True)
        return len(ended) >= self._count


def _print_runs(client: Client, runs: list[Json], varied: list[str]) -> None:
    results = _result_names(runs)
    named = (f"result {name}" if name in varied else name for name in results)
    header = ("run", *varied, "state", "took", *named)
    rows = [
        (
            run["id"],
            *(cell(run["params"].get(name)) for name in varied),
            run["state"],
            took(run["started_at"], run["ended_at"]),
            *(_result_cell(run, name) for name in results),
        )
        for run in runs
    ]
    print_table(header, rows)


def _result_names(runs: list[Json]) -> list[str]:
    """The columns of the results: their names when they are mappings of plain values, else one column."""
    shown = [run["result"] for run in runs if run["result_form"] is not None]
    if shown and all(isinstance(result, dict) for result in shown):
        plain = (str, int, float, bool, type(None))
        names = dict.fromkeys(n for result in shown for n, v in result.items() if isinstance(v, plain))
        return list(names)[:8]
    return ["result"] if shown else []


def _result_cell(run: Json, name: str) -> str:
    result = run["result"]
    if run["result_form"] is None:
        return clip(run["message"], 30) or "-"
    return cell(result.get(name) if isinstance(result, dict) else result)
