"""The command line: a file a command, imported when it is called. `main` is the program.

Every error of ours leaves as one sentence on stderr, with the exit code of its class: 0 ok, 1 the run
failed, 2 usage or configuration, 3 refused or unreachable, 130 interrupted.
"""

from __future__ import annotations

from .program import main

__all__ = ["main"]
