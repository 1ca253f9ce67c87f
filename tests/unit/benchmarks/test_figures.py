"""How figures are told, and that each that is shown is measured."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from benchmarks import figures, fleet, pages, processes, programs, served, workers
from benchmarks.__main__ import main
from benchmarks.figures import COMMIT, PAGE, PYTHON, ROUND_TRIP, ROWS, Row

REFERENCES = {PYTHON: 0.012, COMMIT: 0.0001, ROUND_TRIP: 0.0001}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_every_row_is_measured_somewhere(row: Row) -> None:
    sources = "".join(map(inspect.getsource, (served, workers, fleet, programs, pages, processes)))
    name = row.key.removeprefix("page_").removeprefix("cpu_")
    assert f'"{name}"' in sources


@pytest.mark.parametrize(
    ("row", "value", "shown", "ratio", "met"),
    [
        (Row("a", "a", "ms", 2, ROUND_TRIP), 1.5, "1.5 ms", "15.00", True),
        (Row("a", "a", "/s", 500, PYTHON, least=True), 612.3, "612 /s", "7.35", True),
        (Row("a", "a", "s", 0.5, PYTHON), 0.6, "0.6 s", "50.00", False),
        (Row("a", "a", "µs", 50, COMMIT), 31.26, "31.3 µs", "0.31", True),
        (Row("a", "a", "MB", 100, PYTHON), 83.0, "83 MB", "", True),
    ],
)
def test_a_figure_is_told_with_its_unit_and_in_references(
    row: Row, value: float, shown: str, ratio: str, met: bool
) -> None:
    assert (row.shown(value), row.ratio(value, REFERENCES), row.met(value)) == (shown, ratio, met)


def test_the_figures_take_the_place_of_those_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    for value in (1.25, 1.75):
        figures.write({"dispatch": value}, REFERENCES, page)
    after = page.read_text()
    assert "| under 2 ms | 1.75 ms | 17.50 × websocket round trip |" in after
    assert "1.25 ms" not in after
    assert after.count("<!-- figures -->") == 1
    assert all(f"| {row.what} |" in after for row in ROWS)


def test_the_page_shows_every_row() -> None:
    assert all(f"| {row.what} | {row.aim()} |" in PAGE.read_text() for row in ROWS)


@pytest.mark.parametrize("arguments", [["speed"], ["pages", "--write"]])
def test_what_cannot_be_measured_or_written_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
