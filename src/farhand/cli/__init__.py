"""The command line: a file a command, imported when it is called. `main` is the program.

Every error of ours leaves as one sentence on stderr, with the exit code of its class: 0 ok, 1 the run
failed, 2 usage or configuration, 3 refused or unreachable, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from .. import NOT_HERE, RUNS_HERE

USAGE, INTERRUPTED = 2, 130


def main(**options: Any) -> None:
    """The program. A Ctrl-C while it is still being loaded, which happens here, ends it as one later does."""
    if not RUNS_HERE:
        os.write(2, f"{NOT_HERE}\n".encode())
        os._exit(USAGE)
    gc.disable()  # what is loaded stays; whoever loads the command turns it on
    try:
        from .program import main as program

        program(**options)
    except KeyboardInterrupt:
        os.write(2, b"farhand: interrupted\n")
        os._exit(INTERRUPTED)
