"""Every fault of docs/faults.md has a test, and every fault test is on the page."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tests.fault_report import documented

_MARK = re.compile(r"""mark\.fault\(\s*["'](\d+\.\d+)["']\s*\)""")


def marked() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(_MARK.findall(path.read_text(encoding="utf-8")))
    return found


def test_every_fault_has_a_test() -> None:
    assert sorted(set(documented()) - marked()) == []


def test_every_fault_test_is_documented() -> None:
    assert sorted(marked() - set(documented())) == []


def test_every_report_that_a_test_names_is_on_the_page() -> None:
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        named.update(re.findall(r"\bB\d{3}\b", path.read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    assert sorted(named - set(re.findall(r"^\| (B\d{3}) \|", page, re.MULTILINE))) == []
