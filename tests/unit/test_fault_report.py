from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import fault_report
from tests.fault_report import Report, Tally, documented

pytest_plugins = ["pytester"]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    page = tmp_path / "faults.md"
    page.write_text("| id | what | measured |\n|---|---|---|\n| 1.1 | Cut. | |\n| 1.10 | Burnt. | 2 s |\n")
    monkeypatch.setattr(fault_report, "PAGE", page)
    return page


def test_the_page_gives_ids_and_sentences_in_its_order(page: Path) -> None:
    assert documented() == {"1.1": "Cut.", "1.10": "Burnt."}


def test_a_documented_fault_without_a_test_is_missing(page: Path) -> None:
    assert Report([Tally("1.1", "test_cut", "passed", 0.5)]).missing() == ["1.10"]


def test_a_skipped_test_does_not_count(page: Path) -> None:
    report = Report([Tally("1.1", "test_cut", "passed"), Tally("1.10", "test_burnt", "skipped")])
    assert report.missing() == ["1.10"]


def test_the_report_lists_faults_in_order_with_their_tests_and_times(page: Path) -> None:
    report = Report([Tally("1.10", "test_burnt", "failed", 2.0), Tally("1.1", "test_cut", "passed", 0.5)])
    assert report.lines() == [
        "1.1   Cut.",
        "         0.50 s  passed   test_cut",
        "1.10  Burnt.",
        "         2.00 s  failed   test_burnt",
    ]


def test_an_undocumented_fault_is_named(page: Path) -> None:
    assert "9.9   is not in docs/faults.md: test_x" in Report([Tally("9.9", "test_x", "passed")]).lines()


def test_the_real_page_has_the_faults_of_the_first_release() -> None:
    assert [fault for fault in documented() if re.match(r"1\.", fault)] == [f"1.{n}" for n in range(1, 15)]


def test_measured_times_are_written_into_the_page(page: Path) -> None:
    Report([Tally("1.1", "a", "passed", 0.5), Tally("1.1", "b", "passed", 1.0)]).write()
    assert "| 1.1 | Cut. | 1.5 s |\n| 1.10 | Burnt. | 2 s |\n" in page.read_text()


_TESTS = """
import pytest

@pytest.mark.fault("1.1")
def test_cut(): pass

@pytest.mark.fault("1.1")
@pytest.mark.fault("1.10")
def test_cut_and_burnt(): {body}
"""
_CONFTEST = """
from pathlib import Path
from tests import fault_report

fault_report.PAGE = Path(__file__).with_name("faults.md")
"""
_PAGE = "| id | what | measured |\n|---|---|---|\n| 1.1 | Cut. | |\n| 1.10 | Burnt. | |\n"

_TWO = ("-p", "xdist", "--numprocesses=2")


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A place for tests of faults, with a page of its own."""
    monkeypatch.setenv("PYTHONPATH", str(fault_report.ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each of its processes would load six more
    pytester.makeconftest(_CONFTEST)
    pytester.makeini("[pytest]\nmarkers = fault(id): what it provokes")
    (pytester.path / "faults.md").write_text(_PAGE)
    return pytester


def run(suite: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    suite.makepyfile(test_faults=_TESTS.format(body=body), test_other="def test_other(): pass")
    return suite.runpytest_subprocess("-p", "tests.fault_report", *options)


@pytest.mark.parametrize("processes", [(), _TWO], ids=["alone", "in two processes"])
def test_a_run_reports_each_fault_with_its_tests_and_writes_nothing(
    suite: pytest.Pytester, processes: tuple[str, ...]
) -> None:
    result = run(suite, "pass", *processes)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.re_match_lines_random([r"^1\.1   Cut\.$", r"^1\.10  Burnt\.$"])
    tallies = [line.split()[2:] for line in result.outlines if re.match(r" +[\d.]+ s  ", line)]
    cut, both = "test_faults.py::test_cut", "test_faults.py::test_cut_and_burnt"
    assert tallies == [["passed", cut], ["passed", both], ["passed", both]]
    assert (suite.path / "faults.md").read_text() == _PAGE


def test_a_run_in_which_a_fault_was_not_provoked_fails(suite: pytest.Pytester) -> None:
    result = run(suite, "pytest.skip('no disk')", *_TWO)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["1.10  HAS NO TEST THAT RAN"])


def test_a_run_writes_its_times_when_it_is_asked_to(suite: pytest.Pytester) -> None:
    run(suite, "pass", "--faults-write", *_TWO)
    assert (suite.path / "faults.md").read_text() == _PAGE.replace(". | |", ". | 0.0 s |")


def test_a_fault_whose_process_went_away_under_it_was_not_provoked(suite: pytest.Pytester) -> None:
    result = run(suite, "import os; os._exit(1)", *_TWO)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["1.10  HAS NO TEST THAT RAN"])
