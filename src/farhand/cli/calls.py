"""The calls of a run as ``farhand runs show`` lists them: each with those whose results it took."""

from __future__ import annotations

from typing import Any

import click

from ..errors import Usage
from .client import Client, segment
from .output import clip, compact, moment, print_facts, print_json, print_table, said, took

Json = dict[str, Any]

SHOWN_MAX = 50
NEEDS_SHOWN = 5


def print_calls(client: Client, run: str, worker: str | None) -> None:
    """Print the first calls of a run; nothing when it has made none. ``worker`` has what was not placed."""
    page = client.get(f"/runs/{segment(run)}/tasks", limit=SHOWN_MAX)
    if not page["items"]:
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
        click.echo(f"There are more: GET /runs/{run}/tasks has all of them.", err=True)


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
