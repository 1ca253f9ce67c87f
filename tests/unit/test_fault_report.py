from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import fault_report
from tests.fault_report import Report, Tally, documented


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
