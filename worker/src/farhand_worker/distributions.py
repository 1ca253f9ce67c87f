"""What is installed for an interpreter, as one digest: the names and versions of its distributions.

They are read off the names of their metadata directories, of which nothing is opened: it costs no more than a
listing of each directory on the path. Standard library only; the engine and the agent look alike.
"""

from __future__ import annotations

import os
from typing import Iterable, List, Set

try:
    from _sha2 import sha256  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
except ImportError:
    try:
        from _sha256 import sha256  # its name before Python 3.12
    except ImportError:  # an interpreter without either; hashlib loads OpenSSL, which every engine would pay
        from hashlib import sha256

_ENDINGS = (".dist-info", ".egg-info")


def installed(paths: Iterable[str]) -> List[str]:
    """``name-version`` of every distribution in these directories, sorted."""
    found: Set[str] = set()
    for path in paths:
        try:
            names = os.listdir(path)
        except OSError:
            continue  # a zip, or a directory that is not there
        for name in names:
            stem, ending = os.path.splitext(name)
            if ending in _ENDINGS and not stem.startswith("~"):  # pip's word for what it is replacing
                found.add(stem.lower())
    return sorted(found)


def environment_digest(paths: Iterable[str]) -> str:
    """The digest of what is installed in these directories."""
    return digest_of(installed(paths))


def digest_of(listed: List[str]) -> str:
    """The digest of a list of what is installed."""
    return "sha256:" + sha256("\n".join(listed).encode("utf-8", "replace")).hexdigest()
