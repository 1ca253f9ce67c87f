"""The units of systemd on the pages of the documentation are ones that systemd takes."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.pages import page
from tests.harness.units import read_unit, started, verified

PAGES = ("howto-server.md", "howto-systemd.md")


def unit_of(name: str) -> str:
    """The unit for a whole machine that a page shows: its indented block with all three sections."""
    blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", page(name), re.MULTILINE)
    (found,) = [block for block in blocks if "[Unit]" in block and "[Install]" in block]
    return textwrap.dedent(found)


@pytest.mark.parametrize("name", PAGES)
def test_a_unit_starts_what_the_page_speaks_of_and_stays_down_when_refused(name: str) -> None:
    unit = read_unit(unit_of(name))
    assert sorted(unit) == ["Install", "Service", "Unit"]
    program, *words = started(unit["Service"]["ExecStart"])
    assert Path(program).name in ("farhand", "farhand-worker")
    assert words
    assert unit["Service"]["RestartPreventExitStatus"] == "2 3"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", PAGES)
def test_systemd_finds_no_fault_with_a_unit(name: str, tmp_path: Path) -> None:
    text = unit_of(name)
    program = started(read_unit(text)["Service"]["ExecStart"])[0]
    file = tmp_path / "page.service"
    file.write_text(text.replace(program, sys.executable))  # systemd looks for the program, too
    done = verified(file, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
