"""``farhand.toml``: what a project says of itself. Its ``[server]`` table is read by `farhand.config`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import Usage
from ..model import NAME_PATTERN
from ..suitability import BadSpecifier, python_fits

FILE_NAME = "farhand.toml"
_KEYS = frozenset({"name", "include", "requires_python"})


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """The table ``[project]``: its name, globs of files that go along with the modules, and which Pythons.

    ``requires_python`` is that of pyproject.toml where farhand.toml has none.
    """

    name: str = "default"
    include: tuple[str, ...] = ()
    requires_python: str = ""


def read(root: Path) -> ProjectFile:
    """The project's own settings. Raises `Usage` naming the key and what is wrong with it."""
    path = root / FILE_NAME
    if not path.exists():
        return ProjectFile(requires_python=_of_pyproject(root))
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
    python = table.get("requires_python", "")
    if not isinstance(python, str) or not _is_specifier(python):
        raise Usage(f"requires_python in {path}: {python!r} is no list of versions such as '>=3.10,<4'")
    return ProjectFile(name, tuple(include), python or _of_pyproject(root))


def _is_specifier(text: str) -> bool:
    try:
        python_fits(text, "3.9")
    except BadSpecifier:
        return False
    return True


def _of_pyproject(root: Path) -> str:
    """What a package's own metadata says; a file that says it in another way than we read says nothing."""
    try:
        table: Any = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        python = table["project"]["requires-python"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return python if isinstance(python, str) and _is_specifier(python) else ""


def _inside(glob: str) -> bool:
    pattern = PurePosixPath(glob)
    return bool(pattern.parts) and not pattern.is_absolute() and ".." not in pattern.parts
