"""Runs side by side: which facts there are of them, and what each is in every run. Pure.

A run is what GET gives of it with its attempts, with the summaries of its series under ``metrics`` and, under
``defaults``, what its code gave to the parameters that it was not given (`defaults_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fact:
    """One row: ``group`` is run, parameters, result or metrics. A run that has no such thing has `ABSENT`."""

    group: str
    name: str
    values: tuple[Any, ...]

    @property
    def differs(self) -> bool:
        """Whether it is not the same in all runs."""
        return any(value != self.values[0] for value in self.values[1:])


class _Absent:
    def __repr__(self) -> str:
        return "–"


ABSENT: Any = _Absent()


def comparison(runs: Sequence[Json]) -> list[Fact]:
    """Every fact of the runs, in an order for reading."""
    facts = [Fact("run", name, tuple(run[name] or ABSENT for run in runs)) for name in ("flow", "state")]
    facts.append(Fact("run", "took", tuple(_seconds(run) for run in runs)))
    facts.append(Fact("run", "worker", tuple(run["worker"] or ABSENT for run in runs)))
    facts.append(Fact("run", "code", tuple(run["fingerprint"] or ABSENT for run in runs)))
    for name in ("python", "environment"):
        facts.append(Fact("run", name, tuple(_of_last_attempt(run, name) for run in runs)))
    facts += _columns("parameters", [run["defaults"] | run["params"] for run in runs])
    facts += _columns("result", [_result(run) for run in runs])
    series = [{s["name"]: s for s in run["metrics"]} for run in runs]
    for name in _names(series):
        for part, field in (("last", "last"), ("min", "low"), ("max", "high")):
            values = tuple(of[name][field] if name in of else ABSENT for of in series)
            facts.append(Fact("metrics", f"{name} {part}", values))
    return facts


def defaults_of(run: Json, flow: Json | None) -> Json:
    """The defaults in the schema of a run's flow; none where the server has other code of it by now."""
    if flow is None or not run["fingerprint"] or flow["fingerprint"] != run["fingerprint"]:
        return {}
    described = flow["schema"].get("properties", {})
    return {name: schema["default"] for name, schema in described.items() if "default" in schema}


def _of_last_attempt(run: Json, name: str) -> Any:
    """What an attempt says of the machine it was on; the last one that says it is the one that counts."""
    said = [attempt[name] for attempt in run["attempts"] if attempt[name]]
    return said[-1] if said else ABSENT


def _seconds(run: Json) -> Any:
    begin, end = run["started_at"], run["ended_at"]
    return ABSENT if begin is None or end is None else end - begin


def _columns(group: str, values: list[Json]) -> list[Fact]:
    return [Fact(group, name, tuple(of.get(name, ABSENT) for of in values)) for name in _names(values)]


def _names(values: list[Json]) -> list[str]:
    """Every name, in the order in which the runs have them."""
    return list(dict.fromkeys(name for of in values for name in of))


def _result(run: Json) -> Json:
    """The result by its names; one without names has the empty one."""
    if run["result_form"] is None:
        return {}
    return run["result"] if isinstance(run["result"], dict) else {"": run["result"]}
