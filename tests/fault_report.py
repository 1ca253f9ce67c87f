"""A pytest plugin (``-p tests.fault_report``): each fault with its sentence, its tests and their times.

It reads the ids from docs/faults.md and fails the run when one of them has no test or none that ran.
With ``--faults-write`` it writes the measured times into that page.

Under pytest-xdist the processes that run the tests know their marks and one other process reports, so the
ids travel as properties of each test's report; whoever runs tests for another adds nothing up.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "faults.md"
_OPTION = "--faults-write"
_PROPERTY = "fault"
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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for fault in [value for name, value in report.user_properties if name == _PROPERTY]:
            tally = self.tally(str(fault), report.nodeid)
            if report.when == "call":
                tally.seconds = report.duration
            if report.when == "call" or report.outcome != "passed":
                tally.outcome = report.outcome

    def tally(self, fault: str, test: str) -> Tally:
        """The test's entry under that fault: made at the first that is heard of it."""
        for tally in self.tallies:
            if (tally.fault, tally.test) == (fault, test):
                return tally
        self.tallies.append(Tally(fault, test))
        return self.tallies[-1]

    def missing(self) -> list[str]:
        """The documented ids that no test of this run passed or failed."""
        ran = {tally.fault for tally in self.tallies if tally.outcome in ("passed", "failed")}
        return [fault for fault in documented() if fault not in ran]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.missing() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if session.config.getoption(_OPTION):
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
            ran = sorted(tests.pop(fault, []), key=lambda tally: tally.test)  # processes end in any order
            lines.extend(f"      {t.seconds:7.2f} s  {t.outcome:7}  {t.test}" for t in ran)
        lines.extend(f"{fault:5} is not in docs/faults.md: {t.test}" for fault in tests for t in tests[fault])
        lines.extend(f"{fault:5} HAS NO TEST THAT RAN" for fault in self.missing())
        return lines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, action="store_true", help="write the measured times into docs/faults.md")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties.extend((_PROPERTY, mark.args[0]) for mark in item.iter_markers("fault"))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a process of pytest-xdist that runs tests for another
        config.pluginmanager.register(Report(), "fault-report")
