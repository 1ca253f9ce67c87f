"""The child of a process task, started by `processes`: ``PYTHON process_child.py RUNTIME IN OUT PARENT``."""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Execute the one call that comes, and say how it ended."""
    runtime, reads, writes, parent = sys.argv[1:5]
    _die_with(int(parent))
    sys.path[0] = runtime
    from farhand.sdk import process_work  # noqa: PLC0415 - its place is known only now

    sys.argv[1:] = []
    process_work.work(int(reads), int(writes))


def _die_with(parent: int) -> None:
    """End when the parent does, however it ends. Linux only."""
    if sys.platform.startswith("linux"):
        import ctypes  # noqa: PLC0415 - on other systems it is not needed

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
