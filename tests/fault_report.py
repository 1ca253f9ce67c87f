"""A pytest plugin (``-p tests.fault_report``): each fault with its sentence, its tests and their times.

It reads the ids from docs/faults.md and fails the run when one of them has no test or none that ran.
With ``FARHAND_FAULTS_WRITE=1`` it writes the measured times into that page.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "faults.md"
_ROW = re.compile(r"^\|\s*(\d+\.\d+)\s*\|\s*(.+?)\s*\|")


def documented() -> dict[str, str]:
    """Id → sentence, in the order of docs/faults.md."""
    rows = (_ROW.match(line) for line in PAGE.read_text().splitlines())
    return {row[1]: row[2] for row in rows if row}


@dataclass
class Tally:
    """What one test came to: its outcome, and the time of its call in seconds."""

    fault: str
    test: str
    outcome: str = "not run"
    seconds: float = 0.0


@dataclass(eq=False)  # pytest keeps its plugins in sets
class Report:
    """The tests of each fault, filled in as they run; a test may provoke several."""

    tallies: list[Tally] = field(default_factory=list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            marks = item.iter_markers("fault")
            self.tallies.extend(Tally(mark.args[0], item.nodeid) for mark in marks)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for tally in self.tallies:
            if tally.test != report.nodeid:
                continue
            if report.when == "call":
                tally.seconds = report.duration
            if report.when == "call" or report.outcome != "passed":
                tally.outcome = report.outcome

    def missing(self) -> list[str]:
        """The documented ids that no test of this run passed or failed."""
        ran = {tally.fault for tally in self.tallies if tally.outcome in ("passed", "failed")}
        return [fault for fault in documented() if fault not in ran]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.missing() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if os.environ.get("FARHAND_FAULTS_WRITE") == "1":
            self.write()

    def write(self) -> None:
        """Put the time that the passed tests of each fault took, together, into the page's last column."""
        seconds: dict[str, float] = defaultdict(float)
        for tally in self.tallies:
            if tally.outcome == "passed":
                seconds[tally.fault] += tally.seconds
        lines: list[str] = []
        for line in PAGE.read_text().splitlines():
            row = _ROW.match(line)
            if row and row[1] in seconds:
                line = f"| {row[1]} | {row[2]} | {seconds[row[1]]:.1f} s |"
            lines.append(line)
        PAGE.write_text("\n".join(lines) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("faults")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """The printed report."""
        tests: dict[str, list[Tally]] = defaultdict(list)
        for tally in self.tallies:
            tests[tally.fault].append(tally)
        lines: list[str] = []
        for fault, sentence in documented().items():
            lines.append(f"{fault:5} {sentence}")
            lines.extend(f"      {t.seconds:7.2f} s  {t.outcome:7}  {t.test}" for t in tests.pop(fault, []))
        lines.extend(f"{fault:5} is not in docs/faults.md: {t.test}" for fault in tests for t in tests[fault])
        lines.extend(f"{fault:5} HAS NO TEST THAT RAN" for fault in self.missing())
        return lines


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Report(), "fault-report")
