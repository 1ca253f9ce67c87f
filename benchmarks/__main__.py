"""``python -m benchmarks``: measure, and print every figure with its aim and its ratio to a reference.

``--write`` puts them into docs/benchmarks.md. Part of it is measured by naming parts: fleet, pages,
programs, served, workers.
"""

from __future__ import annotations

import argparse
import compileall
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import farhand
import farhand_worker
from farhand.cli.stage import Stage

from . import figures, fleet, pages, programs, references, served, workers

PARTS = ("programs", "served", "workers", "fleet", "pages")


def main(arguments: list[str] | None = None) -> None:
    """Measure the references, then farhand, and print both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)}")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/benchmarks.md")
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.parts) - set(PARTS))
    if unknown or (asked.write and asked.parts):
        parser.error(f"no such part: {', '.join(unknown)}" if unknown else "--write needs all parts")
    _compile()
    with tempfile.TemporaryDirectory(prefix="farhand-bench-") as name:
        known, found = measure(Path(name), asked.parts or PARTS)
    print(figures.text(found, known))
    if asked.write:
        figures.write(found, known)


def _compile() -> None:
    """Have farhand compiled, as whatever pip installs is: otherwise each start would compile it anew."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for package in (farhand, farhand_worker):
        compileall.compile_dir(Path(package.__path__[0]), quiet=1)


def measure(
    directory: Path, parts: tuple[str, ...] | list[str]
) -> tuple[dict[str, float], Mapping[str, float]]:
    """The references by name, in seconds, and the figures of some parts by key."""
    took = references.measure(directory)
    known = {
        figures.PYTHON: took.python_s,
        figures.CALLS: took.calls_s,
        figures.COMMIT: took.commit_s,
        figures.ROUND_TRIP: took.round_trip_s,
    }
    found: dict[str, float] = {}
    if "programs" in parts:
        found |= programs.measure(directory, took.python_s)
    if "served" in parts:
        with Stage(directory, served.FLOWS) as stage:
            found |= served.measure(stage)
    for part, module in (("workers", workers), ("fleet", fleet)):
        if part in parts:
            home = directory / part
            home.mkdir()
            with Stage(home, served.FLOWS) as stage:
                found |= module.measure(stage)
    if "pages" in parts:
        found |= pages.measure(directory)
    return known, found


if __name__ == "__main__":
    sys.exit(main())
