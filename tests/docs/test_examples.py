"""What the pages tell a newcomer to type does what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from farhand import config

from .pages import ROOT


def _block(file: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / file).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_flow_of_the_readme_runs_from_the_command_line_and_as_a_function(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(_block("README.md", "python"), encoding="utf-8")

    def python(*arguments: str) -> str:
        environment = os.environ | {"FARHAND_HOME": str(tmp_path / "home")}
        call = [sys.executable, *arguments]
        return subprocess.run(
            call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert python("-m", "farhand", "run", "pipeline.py:report", "-p", "city=Seattle").startswith("11.")
    assert python("-c", "from pipeline import report; print(report())").startswith("11.")
    assert len(list((tmp_path / "home" / "inbox").glob("*.jsonl"))) == 2


def test_the_settings_page_shows_a_file_that_can_be_used_whole(tmp_path: Path) -> None:
    (tmp_path / "farhand.toml").write_text(_block("docs/settings.md", "toml"), encoding="utf-8")
    given = tomllib.loads(_block("docs/settings.md", "toml"))
    assert set(given) == {"server"}
    sources = config.load(root=tmp_path, environment={}).sources
    assert {name for name, source in sources.items() if source == "farhand.toml"} == set(given["server"])
