"""Which commit a directory is at, read from its ``.git`` without running git."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")
_SHORT = 12


def git_state(directory: Path) -> str:
    """``BRANCH COMMIT`` (the commit alone where no branch is checked out); empty where there is no git.

    It says where code came from and not what it is: changes that are not committed do not show in it.
    """
    git = _git_directory(directory)
    if git is None:
        return ""
    head = _read(git / "HEAD")
    if not head.startswith("ref: "):
        return head[:_SHORT] if _COMMIT.match(head) else ""
    reference = head[5:].strip()
    branch = reference.split("refs/heads/", 1)[-1]
    commit = _commit(git, reference)
    return f"{branch} {commit[:_SHORT]}" if commit else branch


def _git_directory(directory: Path) -> Optional[Path]:
    for place in (directory, *directory.parents):
        git = place / ".git"
        if git.is_dir():
            return git
        pointer = _read(git)
        if pointer.startswith("gitdir: "):  # a worktree or a submodule
            return (place / pointer[8:].strip()).resolve()
    return None


def _commit(git: Path, reference: str) -> str:
    shared = _read(git / "commondir")
    for place in [git, *([(git / shared).resolve()] if shared else [])]:
        commit = _read(place / reference)
        if _COMMIT.match(commit):
            return commit
        for line in _read(place / "packed-refs").splitlines():
            commit, _, name = line.partition(" ")
            if name == reference and _COMMIT.match(commit):
                return commit
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
