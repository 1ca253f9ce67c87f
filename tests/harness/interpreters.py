"""Other Pythons of this machine, for tests of what runs on them."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess

import pytest

_KEPT = os.path.expanduser("~/.pyenv/versions/{version}.*/bin/python3")


def interpreter(version: str) -> str:
    """A Python of that version, on the path or kept beside others; skips where there is none."""
    found = [shutil.which(f"python{version}") or "", *glob.glob(_KEPT.format(version=version))]
    for path in sorted(filter(None, found)):
        answer = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if answer.stdout.strip() == version:
            return path
    pytest.skip(f"Python {version} is absent: a worker on it")
