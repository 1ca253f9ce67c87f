"""A file system so small that a test can fill it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(target: Path, size_mb: int) -> Iterator[Path]:
    """A file system of its own at ``target``, in memory. Skips the test where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    target.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs"]
    made = subprocess.run(["mount", *options, str(target)], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.strip()}")
    try:
        yield target
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)
