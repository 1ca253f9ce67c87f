"""The warden's program, also when the worker is one file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import farhand_worker
from farhand_worker.warden_process import ARGUMENTS


def _modules(*arguments: str) -> set[str]:
    """Run a warden until its agent is gone; the modules of farhand that it loaded."""
    agents, theirs = socket.socketpair()
    agents.close()
    result = subprocess.run(
        [sys.executable, "-v", *arguments, "--fd", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    theirs.close()
    names = {line.split()[1].strip("'") for line in result.stderr.splitlines() if line.startswith("import ")}
    return {name for name in names if "farhand" in name or "websockets" in name}


WANTED = {"farhand_worker"} | {
    f"farhand_worker.{name}" for name in ("alarm", "forking", "trees", "warden", "wards")
}


def test_the_warden_loads_itself_and_the_standard_library() -> None:
    assert _modules(*ARGUMENTS) == WANTED


def test_the_warden_runs_out_of_a_zip(tmp_path: Path) -> None:
    archive = tmp_path / "worker.pyz"
    with zipfile.ZipFile(archive, "w") as target:
        for path in Path(farhand_worker.__file__).parent.glob("*.py"):
            target.write(path, f"farhand_worker/{path.name}")
    *before, _ = ARGUMENTS
    assert _modules(*before, f"{archive}/farhand_worker/warden.py") == WANTED
