"""``farhand.toml``: what a project says of itself. Its ``[server]`` table is read by `farhand.config`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import Usage
from ..model import NAME_PATTERN

FILE_NAME = "farhand.toml"
_KEYS = frozenset({"name", "include"})


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """The table ``[project]``: its name, and globs of files that go along with the modules."""

    name: str = "default"
    include: tuple[str, ...] = ()


def read(root: Path) -> ProjectFile:
    """The project's own settings. Raises `Usage` naming the key and what is wrong with it."""
    path = root / FILE_NAME
    if not path.exists():
        return ProjectFile()
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise Usage(f"{path} cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise Usage(f"{path} has no table [project], but project = {table!r}")
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise Usage(f"{path} has unknown settings under [project]: {', '.join(unknown)}")
    name, include = table.get("name", "default"), table.get("include", [])
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        raise Usage(f"name in {path}: {name!r} does not match {NAME_PATTERN}")
    if not isinstance(include, list) or not all(isinstance(glob, str) and _inside(glob) for glob in include):
        raise Usage(f"include in {path}: a list of globs inside the project, such as 'data/*.csv'")
    return ProjectFile(name, tuple(include))


def _inside(glob: str) -> bool:
    pattern = PurePosixPath(glob)
    return bool(pattern.parts) and not pattern.is_absolute() and ".." not in pattern.parts
