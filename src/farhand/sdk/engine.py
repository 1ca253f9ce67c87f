"""The engine's entry: ``PYTHON -I -S <runtime>/farhand/sdk/engine.py --fd N [--stem]``.

It imports everything it needs from its own runtime and the standard library, and only then lets the
interpreter read its site packages, PYTHONPATH and the project: so neither an installed farhand nor a
project's ``queue.py`` takes the place of a module that the engine relies on. A stem stops between the two;
every engine that is forked from it goes on from there.
"""

from __future__ import annotations

import gc
import os
import sys

RUNTIME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> None:
    """Serve jobs until the agent says quit, or is gone."""
    gc.disable()  # what is loaded here stays: looking through it for garbage is a twentieth of a start
    sys.path.insert(0, RUNTIME)
    import site  # noqa: PLC0415 - does nothing yet

    from farhand.sdk.jobs import Engine  # noqa: PLC0415 - its place is known only now

    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    if "--stem" in sys.argv:
        from farhand.sdk.stem import Stem  # noqa: PLC0415 - engines that are not forked need none of it

        gc.freeze()  # before the fork: what is never looked through is not copied
        Stem(fd).serve()
    sys.path.remove(RUNTIME)
    python_path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    site.main()  # reads .pth files, so it comes after everything else
    sys.path[:0] = python_path
    sys.path.append(RUNTIME)
    gc.freeze()
    gc.enable()
    Engine(fd).serve()


if __name__ == "__main__":
    main()
