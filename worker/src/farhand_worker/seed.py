"""What a stem does until there is a runtime: it loads what engines need of the standard library.

An agent has it begin before it has reached its server. It is not imported but sent to the stem as text, on
the socket at which the stem takes orders later; the next line there is the entry of the runtime. Python 3.9.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

FD = 3
"""Where a stem finds its socket."""

MODULES = (
    "__future__ _blake2 _sha2 _sha256 array ast base64 binascii collections.abc contextlib contextvars copy "
    "ctypes datetime dis enum fcntl fnmatch functools heapq importlib.util inspect ipaddress itertools json "
    "linecache logging mimetypes operator pathlib pickle queue re select selectors signal site socket string "
    "struct termios textwrap threading time traceback types typing urllib.parse warnings weakref"
)
"""What a runtime loads; one that needs more loads it by itself, and what is not there is passed over."""


def main() -> None:
    """Load them, wait for the runtime, and go on as its entry."""
    for name in MODULES.split():
        try:
            __import__(name)
        except ImportError:
            continue  # of another version
    with open(FD, "rb", 0, closefd=False) as link:  # unbuffered: what follows the line is not ours
        line = link.readline()
    if not line:
        os._exit(0)
    entry = json.loads(line)["entry"]
    with open(entry, "rb") as file:
        code = compile(file.read(), entry, "exec")
    sys.argv[:] = [entry, "--fd", str(FD), "--stem"]
    exec(code, _cleared(entry))


def _cleared(entry: str) -> Dict[str, Any]:
    """The main module, as if it were the entry's file that was started."""
    place = vars(sys.modules["__main__"])
    for name in [name for name in place if not name.startswith("__")]:
        del place[name]
    place.update(__file__=entry, __doc__=None)
    return place


if __name__ == "__main__":
    main()
