"""The Python on the pages of the documentation runs, and says what it says it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import examples

PAGES = ("declared.md", "flows.md", "howto-test.md", "parameters.md", "services.md", "targets.md")


@pytest.mark.parametrize(
    ("page", "number", "code"),
    [(page, number, code) for page in PAGES for number, code in enumerate(examples(page), 1)],
)
def test_an_example_runs(page: str, number: int, code: str, tmp_path: Path) -> None:
    file = tmp_path / f"example{number}.py"
    file.write_text(code)
    env = {**os.environ, "FARHAND_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
