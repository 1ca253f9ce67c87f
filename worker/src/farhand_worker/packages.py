"""What has changed between two lists of what is installed; and the list that is kept over restarts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterable, List, Optional

NAMED_MAX = 50
"""So many changes are named."""


def difference(before: Iterable[str], after: Iterable[str]) -> List[str]:
    """What was added, removed or is of another version, by name. An item reads ``name-version``."""
    old, new = _versions(before), _versions(after)
    told: List[str] = []
    for name in sorted(old.keys() | new.keys()):
        had, has = old.get(name), new.get(name)
        if had is None:
            told.append(f"{name} {has} added")
        elif has is None:
            told.append(f"{name} {had} removed")
        elif had != has:
            told.append(f"{name} {had} is now {has}")
    more = len(told) - NAMED_MAX
    return [*told[:NAMED_MAX], f"{more} more"] if more > 0 else told


def _versions(listed: Iterable[str]) -> Dict[str, str]:
    """Name → version; where a name is there more than once, the versions that are."""
    found: Dict[str, str] = {}
    for each in listed:
        name, _, version = each.partition("-")
        found[name] = f"{found[name]} and {version}" if name in found else version
    return found


def read_kept(path: Path) -> Optional[List[str]]:
    """The list that an earlier program of this state directory has kept, or None."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None


def keep(path: Path, listed: List[str]) -> None:
    """Keep the list; a disk that takes nothing costs no more than the names of the next change."""
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text("\n".join(listed), encoding="utf-8", errors="replace")
        os.replace(fresh, path)
    except OSError:
        return
