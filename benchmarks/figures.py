"""What is measured, in the order in which it is shown: the one table behind the output and the page."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"

PYTHON, CALLS = "python -c pass", "10,000 function calls"
COMMIT, ROUND_TRIP = "SQLite commit, FULL", "websocket round trip"
"""The references. A figure is told as a multiple of one of them, measured in the same run."""

_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Row:
    """One figure. ``limit`` is what it should not pass (reach, with ``least``), in ``unit``; None: none."""

    key: str
    what: str
    unit: str
    limit: float | None
    reference: str
    least: bool = False

    def shown(self, value: float) -> str:
        """The figure with its unit."""
        return f"{value:.0f} {self.unit}" if value >= 100 else f"{value:.3g} {self.unit}"

    def aim(self) -> str:
        """What it should be."""
        if self.limit is None:
            return ""
        return f"{'over' if self.least else 'under'} {self.limit:g} {self.unit}"

    def ratio(self, value: float, references: Mapping[str, float]) -> str:
        """The figure as a multiple of its reference: a time by a time, a rate by a rate."""
        seconds = references[self.reference]
        per = {"/s": seconds, "ms": 1e-3 / seconds, "µs": 1e-6 / seconds, "s": 1 / seconds}.get(self.unit)
        return "" if per is None else f"{value * per:.2f}"

    def met(self, value: float) -> bool:
        """Whether it is where it should be."""
        if self.limit is None:
            return True
        return value >= self.limit if self.least else value <= self.limit


ROWS = (
    Row("dispatch", "dispatch to a warm engine, from the request to user code: median", "ms", 2, ROUND_TRIP),
    Row("dispatch_p99", "the same: 99th percentile", "ms", 8, ROUND_TRIP),
    Row("runs", "no-op runs, four clients, two slots of the server", "/s", 500, PYTHON, least=True),
    Row("cpu_server", "CPU time of one of them: server", "ms", 1.5, CALLS),
    Row("cpu_agent", "CPU time of one of them: agent", "ms", 1.5, CALLS),
    Row("cpu_engines", "CPU time of one of them: engines, their starts included", "ms", 1.5, CALLS),
    Row("remote_runs", "no-op runs on a worker with two slots", "/s", 250, PYTHON, least=True),
    Row("remote_call", "placed no-op call, there and back: median", "ms", 2, ROUND_TRIP),
    Row("remote_calls", "placed no-op calls, two slots", "/s", 800, ROUND_TRIP, least=True),
    Row("remote_megabyte", "1 MiB to a placed call and back", "MB/s", 200, ROUND_TRIP, least=True),
    Row("megabyte_server", "CPU time of such a call: server", "ms", None, CALLS),
    Row("megabyte_agents", "CPU time of such a call: both agents", "ms", None, CALLS),
    Row(
        "artifacts", "128 MiB file to a worker, as a share of a plain HTTP copy", "%", 70, PYTHON, least=True
    ),
    Row("attach", "worker, from its attaching to user code of a job that waits", "ms", 100, PYTHON),
    Row("spill", "run that the server has no slot for, until user code on the worker", "ms", 50, ROUND_TRIP),
    Row("cancel", "cancelling a run on a worker", "ms", 500, ROUND_TRIP),
    Row("agent_death", "agent killed, until its worker is known as lost", "s", 6, PYTHON),
    Row("host_death", "machine at a standstill, until its run executes on another", "s", 20, PYTHON),
    Row("fleet_heartbeats", "1,000 workers that beat: share of a core", "%", 25, PYTHON),
    Row("fleet_handoff_p99", "hand-off among them: 99th percentile", "ms", 100, ROUND_TRIP),
    Row("fleet_memory", "memory that they take in the server", "MB", None, PYTHON),
    Row("task_served", "no-op task inside a served run, recorded by its end", "µs", 50, CALLS),
    Row("task_script", "no-op task inside a script", "µs", 50, CALLS),
    Row("mapped", "10,000 tasks mapped through threads, in a script", "s", 0.8, PYTHON),
    Row("log_lines", "50,000 printed lines of a served run, every one stored", "s", 0.5, COMMIT),
    Row("page_first", "first page of 50 runs, of 200,000", "ms", 4, COMMIT),
    Row("page_deep", "deep page of 50 runs, of 200,000", "ms", 4, COMMIT),
    Row("page_flow", "page of a flow and a state, of 200,000", "ms", 4, COMMIT),
    Row("page_host", "page of a host, of 200,000", "ms", 4, COMMIT),
    Row("page_text", "page of a text that many runs hold, of 200,000", "ms", 4, COMMIT),
    Row("page_rare", "page of a text that no run holds, of 200,000", "ms", 4, COMMIT),
    Row("import", "`import farhand`, beyond starting Python", "ms", 50, PYTHON),
    Row("help", "`farhand --help`, in all", "ms", 120, PYTHON),
    Row("script", "smallest flow as a script, in all", "ms", 130, PYTHON),
    Row("server_start", "server, from its start to the first healthy answer", "s", 1, PYTHON),
    Row("idle_memory", "memory of an idle server (RSS)", "MB", 100, PYTHON),
)


def text(found: Mapping[str, float], references: Mapping[str, float]) -> str:
    """What was measured, a line each."""
    lines = [machine(), *(f"  {name:28} {seconds * 1000:9.3f} ms" for name, seconds in references.items())]
    lines.append("")
    for row in ROWS:
        if row.key in found:
            value = found[row.key]
            mark = " " if row.met(value) else "!"
            ratio = row.ratio(value, references)
            times = f"{ratio:>9} × {row.reference}" if ratio else ""
            lines.append(f"{mark} {row.what:68} {row.shown(value):>10}  {row.aim():16}{times}")
    return "\n".join(lines)


def table(found: Mapping[str, float], references: Mapping[str, float]) -> str:
    """The same as a table for the page; what was not measured has no figure."""
    lines = ["| what | aim | measured | in references |", "|---|---|---|---|"]
    for row in ROWS:
        value = found.get(row.key)
        shown = "" if value is None else row.shown(value)
        ratio = "" if value is None else row.ratio(value, references)
        times = f"{ratio} × {row.reference}" if ratio else ""
        lines.append(f"| {row.what} | {row.aim()} | {shown} | {times} |")
    return "\n".join(lines)


def write(found: Mapping[str, float], references: Mapping[str, float], page: Path = PAGE) -> None:
    """Put the table into the page, in the place of the one that is there."""
    known = ", ".join(f"{name} {seconds * 1000:.3f} ms" for name, seconds in references.items())
    said = f"Measured on {machine()}: {known}." if found else "Not measured on this version yet."
    block = f"{_BEGIN}\n{said}\n\n{table(found, references)}\n{_END}"
    before = page.read_text()
    after = re.sub(f"{_BEGIN}.*{_END}", lambda _: block, before, flags=re.DOTALL)
    if block not in after:
        raise ValueError(f"{page} has no place for the figures")
    page.write_text(after)


def machine() -> str:
    """What the figures were measured on, and how busy it was."""
    load = os.getloadavg()[0]
    return (
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"load {load:.1f} at the end"
    )
