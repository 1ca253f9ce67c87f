"""How many files a process may have open: some systems begin with 256, and connections and jobs are files."""

from __future__ import annotations

import contextlib
import resource
from typing import Tuple

_WANTED_MAX = 65536


def make_room() -> Tuple[int, int]:
    """Raise this process's own limit as far as the system lets it; what it was before.

    What was started before keeps its own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, _WANTED_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS has a bound that it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, hard
