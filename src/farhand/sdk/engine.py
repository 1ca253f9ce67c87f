"""The engine's entry: ``PYTHON -I -S <runtime>/farhand/sdk/engine.py --fd N``.

It imports everything it needs from its own runtime and the standard library, and only then lets the
interpreter read its site packages, PYTHONPATH and the project: so neither an installed farhand nor a
project's ``queue.py`` takes the place of a module that the engine relies on.
"""

from __future__ import annotations

import gc
import os
import sys

RUNTIME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> None:
    """Serve jobs until the agent says quit, or is gone."""
    gc.disable()  # what is loaded here stays: looking through it for garbage is a twentieth of a start
    python_path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path.insert(0, RUNTIME)
    from farhand.sdk.jobs import Engine  # noqa: PLC0415 - its place is known only now

    sys.path.remove(RUNTIME)
    import site  # noqa: PLC0415 - reads .pth files, so it comes after everything else

    site.main()
    sys.path[:0] = python_path
    sys.path.append(RUNTIME)
    gc.freeze()
    gc.enable()
    Engine(int(sys.argv[sys.argv.index("--fd") + 1])).serve()


if __name__ == "__main__":
    main()
