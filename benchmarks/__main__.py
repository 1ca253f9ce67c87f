"""``python -m benchmarks``: print every speed with its ratio to a reference of the same run."""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

from benchmarks import pages, references, served
from farhand.cli.stage import Stage


def main() -> None:
    """Measure the references, then farhand, and print both."""
    with (
        tempfile.TemporaryDirectory(prefix="farhand-bench-") as name,
        Stage(Path(name), served.FLOWS) as stage,
    ):
        known = references.measure(stage.directory)
        print(f"Python {platform.python_version()} on {platform.machine()}")
        print(f"  {'python -c pass':34} {ms(known.python_s)}")
        print(f"  {'one SQLite commit, FULL':34} {ms(known.commit_s)}")
        print(f"  {'websocket round trip':34} {ms(known.round_trip_s)}")
        client = served.set_up(stage)
        for flow, params in (("noop", {}), ("noop", {}), ("remote_calls", {"count": 2})):
            served.finish(client, flow, **params)  # warms the engines
        dispatch_s = served.dispatch_s(client)
        remote_s = served.remote_call_s(client)
        task_s = served.task_s(client)
        rate = served.runs_a_second(client)
        asked = pages.measure(Path(name))
    print("farhand")
    line("dispatch, warm, median", ms(dispatch_s), dispatch_s / known.round_trip_s, "websocket round trips")
    line("remote call, median", ms(remote_s), remote_s / known.round_trip_s, "websocket round trips")
    line("task in a run, mean", ms(task_s), task_s / known.commit_s, "SQLite commits")
    line("no-op runs", f"{rate:8.0f} /s  ", known.python_s * rate, "× the rate of python -c pass")
    print(f"pages of 50 runs, with {pages.FEW} and with {pages.MANY} stored")
    for what, (few_s, many_s) in asked.items():
        line(what, f"{ms(few_s)}{ms(many_s)}", many_s / few_s, "times as long")


def ms(seconds: float) -> str:
    """A time in milliseconds."""
    return f"{seconds * 1000:8.3f} ms  "


def line(what: str, figure: str, ratio: float, unit: str) -> None:
    """One measurement."""
    print(f"  {what:34} {figure} {ratio:8.2f} {unit}")


if __name__ == "__main__":
    sys.exit(main())
