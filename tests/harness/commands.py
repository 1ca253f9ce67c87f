"""The command line, called in this process: an interpreter of its own takes longer than most commands do."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from subprocess import CompletedProcess

from click.testing import CliRunner

from farhand.cli.program import main

from .deployment import Deployment


def called(deployment: Deployment, *words: str, cwd: Path | None = None) -> CompletedProcess[str]:
    """How a command ends that is called on the machine of a server, in its environment."""
    ours: dict[str, str | None] = {name: None for name in os.environ if name.startswith("FARHAND_")}
    with contextlib.chdir(cwd or deployment.directory):
        result = CliRunner().invoke(
            main, list(words), env=ours | deployment.server.environment, catch_exceptions=False
        )
    return CompletedProcess(words, result.exit_code, result.stdout, result.stderr)
