"""Where the repository and its pages are, and the generator of some of them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def generator() -> ModuleType:
    """docs/generate.py, which is a script and not a package."""
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    """The text of a page of docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def repository_files() -> list[Path]:
    """The files under version control, or all but the ignored kinds where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        skipped = {".venv", ".git", "__pycache__", ".pytest_cache", ".ruff_cache", ".hypothesis"}
        paths = [path for path in ROOT.rglob("*") if not skipped & set(path.parts)]
    return [path for path in paths if path.is_file()]


def examples(name: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page(name), re.DOTALL | re.MULTILINE)
