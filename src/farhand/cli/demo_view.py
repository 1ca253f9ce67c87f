"""What the demo prints, made from what the API answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def parts(run: Json, tasks: Sequence[Json]) -> list[list[str]]:
    """One row for the flow and each of its task calls: name, worker, host, process, time, result.

    A call ran where the run's last attempt did. A placed one ran elsewhere: its record names the worker, and
    its value the host and the process, where it returns them.
    """
    last: Json = run["attempts"][-1] if run["attempts"] else {}
    rows = [_row(run["flow"], last, _took(run), run["state"])]
    for task in tasks:
        where = _placed(task) if task["placed"] else last
        rows.append(_row(f"  {name_of(task)}", where, _took(task), result_of(task)))
    return rows


def name_of(task: Json) -> str:
    """A task call's name, with its place when it is one of a map."""
    return task["name"] if task["index"] is None else f"{task['name']}[{task['index']}]"


def state_of(task: Json) -> str:
    """Its state, and where."""
    if not task["worker"]:
        return str(task["state"])
    return (
        f"handed to {task['worker']}" if task["state"] == "queued" else f"{task['state']} on {task['worker']}"
    )


def result_of(task: Json) -> str:
    """In a few words: a year's figures, or the state and how many tries it took."""
    value = task["value"]
    if isinstance(value, Mapping) and {"year", "mean", "rain_days"} <= set(value):
        return f"{value['year']}: {value['mean']:.1f} °C, {value['rain_days']} days of rain"
    tries = f" at try {task['attempts']}" if task["attempts"] > 1 else ""
    return f"{task['state']}{tries}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns aligned to their widest cell, under a header and a line."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    head = "  ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True))
    return [line.rstrip() for line in (head, "  ".join("─" * width for width in widths), *lines)]


HEADER = ("part", "worker", "host", "process", "took", "result")


def _row(name: str, where: Json, took: str, result: str) -> list[str]:
    facts = (str(where.get(fact) or "-") for fact in ("worker", "host", "pid"))
    return [name, *facts, took, result]


def _placed(task: Json) -> Json:
    value = task["value"] if isinstance(task["value"], Mapping) else {}
    return {"worker": task["worker"], "host": value.get("host"), "pid": value.get("pid")}


def _took(record: Json) -> str:
    if record["started_at"] is None or record["ended_at"] is None:
        return "-"
    return f"{record['ended_at'] - record['started_at']:.2f} s"
