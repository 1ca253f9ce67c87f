"""How many files the agent may have open: each job takes a handful, and some systems begin with 256."""

from __future__ import annotations

import contextlib
import resource

_WANTED_MAX = 65536


def make_room() -> None:
    """Raise this process's own limit as far as the system lets it. What was started before keeps its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, _WANTED_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS has a bound that it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
