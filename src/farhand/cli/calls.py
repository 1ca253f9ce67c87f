"""The calls of a run as ``farhand runs show`` lists them: each with those whose results it took."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from ..errors import Usage
from ..lifecycle import TASK
from .client import Client, segment
from .output import clip, compact, moment, print_facts, print_json, print_table, said, took

Json = dict[str, Any]

SHOWN = 50
NEEDS_SHOWN = 5


class Listed(NamedTuple):
    """Which calls of a run are to be listed."""

    state: str | None
    after: int | None
    limit: int | None

    @property
    def asked(self) -> bool:
        """Whether anybody said so."""
        return any(value is not None for value in self)


def calls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the command ``listed``, a `Listed`."""

    @click.option("--state", type=click.Choice(list(TASK)), help="List the calls in this state alone.")
    @click.option(
        "--after", type=click.IntRange(min=0), metavar="N", help="List the calls after this number alone."
    )
    @click.option(
        "--limit", type=click.IntRange(1, 1000), metavar="N", help=f"List so many calls at most; {SHOWN}."
    )
    @functools.wraps(command)
    def listing(*args: Any, state: str | None, after: int | None, limit: int | None, **options: Any) -> Any:
        return command(*args, listed=Listed(state, after, limit), **options)

    return listing


def read_calls(client: Client, run: str, listed: Listed) -> Json:
    """A page of the calls of a run: where it does not hold all, what failed comes first."""
    first = {"state": listed.state} if listed.state else {"failing_first": "true"}
    return client.get(
        f"/runs/{segment(run)}/tasks", limit=listed.limit or SHOWN, after=listed.after or 0, **first
    )


def print_calls(client: Client, run: str, worker: str | None, listed: Listed) -> None:
    """Print calls of a run; nothing when it has made none. ``worker`` has what was not placed."""
    page = read_calls(client, run, listed)
    if not page["items"]:
        if listed.asked:
            click.echo("No call is like that.", err=True)
        return
    numbers = {task["key"]: task["number"] for task in page["items"]}
    click.echo("")
    print_table(
        ("call", "task", "state", "worker", "took", "after", "says"),
        [
            (
                str(task["number"]),
                _name(task),
                task["state"],
                task["worker"] or (worker if task["placed"] is None else None) or "-",
                took(task["started_at"], task["ended_at"]),
                _after(task, numbers),
                _says(task),
            )
            for task in page["items"]
        ],
    )
    if page["next"]:
        counts = client.get(f"/runs/{segment(run)}/tasks/summary", after=listed.after or 0)["items"]
        click.echo(_what_is_left(run, page, counts, listed), err=True)


def _what_is_left(run: str, page: Json, counts: list[Json], listed: Listed) -> str:
    """How many calls follow a page, and how they are seen."""
    of = {each["state"]: each["count"] for each in counts}
    left = (of.get(listed.state, 0) if listed.state else sum(of.values())) - len(page["items"])
    state = f" --state {listed.state}" if listed.state else ""
    told = f"{left} more: farhand runs show {run}{state} --after {page['next']}"
    if listed.state or listed.after or len(of) < 2:
        return told
    kinds = ", ".join(f"{count} {name}" for name, count in of.items())
    return f"{told}, or one kind by --state ({kinds})"


def print_call(client: Client, run: str, number: int, as_json: bool) -> None:
    """Print all there is about one call of a run: what it returned, or the traceback of what it raised."""
    page = client.get(f"/runs/{segment(run)}/tasks", after=number - 1, limit=1)
    task = next((task for task in page["items"] if task["number"] == number), None)
    if task is None:
        raise Usage(f"{run} has no call {number}; `farhand runs show {run}` lists them")
    if as_json:
        print_json(task)
        return
    print_facts(
        {
            "run": run,
            "call": str(number),
            "task": _name(task),
            "state": task["state"],
            "says": _says(task),
            "worker": task["worker"] or "",
            "started": "" if task["started_at"] is None else moment(task["started_at"]),
            "took": took(task["started_at"], task["ended_at"]),
            "tries": str(task["attempts"] or ""),
            "result": "" if task["value_form"] is None else compact(task["value"]),
        }
    )
    if task["error"] and task["error"].get("traceback"):
        click.echo(f"\n{task['error']['traceback'].rstrip()}")


def _name(task: Json) -> str:
    place = "" if task["index"] is None else f"[{task['index']}]"
    return f"{task['name']}{place}"


def _after(task: Json, numbers: dict[str, int]) -> str:
    """The calls it needed, as far as they are in the list."""
    known = sorted(numbers[key] for key in task["needs"] or () if key in numbers)
    more = f" and {len(known) - NEEDS_SHOWN} more" if len(known) > NEEDS_SHOWN else ""
    return ", ".join(map(str, known[:NEEDS_SHOWN])) + more or "-"


def _says(task: Json) -> str:
    if task["flow_run"]:
        return f"run {task['flow_run']}"
    if task["error"]:
        return clip(f"{task['error'].get('type', '')}: {task['error'].get('message', '')}")
    if task["message"]:
        return task["message"]
    return clip(said(task["progress"]) if task["state"] == "running" else "")
