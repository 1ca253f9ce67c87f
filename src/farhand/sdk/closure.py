"""Which files a project's flows reach: by import, from the text alone, and what lies beside them."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple

from .loading import import_roots

FILE_BYTES_MAX = 1024 * 1024
TOTAL_BYTES_MAX = 16 * 1024 * 1024
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "env", "site-packages"})
_TESTS = frozenset({"tests", "test"})


class Source:
    """One Python file of a project, parsed. ``imports`` are absolute names, as far as they are static."""

    def __init__(self, path: Path, module: str, is_package: bool) -> None:
        self.path = path
        self.module = module
        self.imports: Set[str] = set()
        package = module if is_package else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            if isinstance(node, ast.Import):
                self.imports.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(package, node.level, node.module)
                self.imports.add(base)
                self.imports.update(f"{base}.{alias.name}" for alias in node.names)

    @property
    def uses_farhand(self) -> bool:
        """Whether it imports farhand, as every file with a flow does."""
        return any(name.partition(".")[0] == "farhand" for name in self.imports)


def _absolute(package: str, level: int, module: Optional[str]) -> str:
    if level == 0:
        return module or ""
    parts = package.split(".") if package else []
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, *([module] if module else [])])


def python_files(root: Path) -> Iterator[Path]:
    """The project's Python files, without hidden places, environments and tests. Links are followed once."""
    for directory, _, names in _walk(root):
        for name in sorted(names):
            path = directory / name
            if name.endswith(".py") and not name.startswith((".", "test_")) and name != "conftest.py":
                yield path


def _walk(root: Path) -> Iterator[Tuple[Path, List[str], List[str]]]:
    seen: Set[Tuple[int, int]] = set()
    for directory, subdirectories, names in os.walk(root, followlinks=True):
        status = os.stat(directory)
        if (status.st_dev, status.st_ino) in seen or (Path(directory) != root and "pyvenv.cfg" in names):
            subdirectories[:] = []
            continue
        seen.add((status.st_dev, status.st_ino))
        subdirectories[:] = sorted(
            name for name in subdirectories if not name.startswith(".") and name not in _SKIPPED | _TESTS
        )
        yield Path(directory), subdirectories, names


def module_name(root: Path, path: Path) -> str:
    """The name under which a file of a project is imported."""
    base = next(Path(base) for base in reversed(import_roots(root)) if path.is_relative_to(base))
    parts = list(path.relative_to(base).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def reached(root: Path, starts: List[Source]) -> Set[Path]:
    """The files inside ``root`` that the sources import, directly or not, with the packages they lie in."""
    found: Set[Path] = set()
    waiting = list(starts)
    while waiting:
        source = waiting.pop()
        if source.path in found:
            continue
        found.add(source.path)
        for name in (source.module, *source.imports):
            for path, module in _files_of(root, name):
                if path not in found:
                    waiting.append(_parsed(path, module))
    return found


def _parsed(path: Path, module: str) -> Source:
    try:
        return Source(path, module, path.name == "__init__.py")
    except (SyntaxError, ValueError, OSError):
        source = Source.__new__(Source)  # it goes along as it is; importing it will say what is wrong
        source.path, source.module, source.imports = path, module, set()
        return source


def _files_of(root: Path, name: str) -> Iterator[Tuple[Path, str]]:
    """The files that importing ``name`` executes, if it is a module of this project."""
    parts = name.split(".")
    for base in map(Path, import_roots(root)):
        place = base
        for depth, part in enumerate(parts, 1):
            if not part:
                break
            module = ".".join(parts[:depth])
            if (place / f"{part}.py").is_file():
                yield place / f"{part}.py", module
            place = place / part
            if (place / "__init__.py").is_file():
                yield place / "__init__.py", module


def with_neighbours(root: Path, modules: Set[Path]) -> Tuple[List[str], List[str]]:
    """(files, left out): the modules and the small files beside them, as paths relative to ``root``."""
    files: Dict[str, None] = {}
    left_out: List[str] = []
    total = 0
    for path in sorted(modules):
        files[str(path.relative_to(root))] = None
        total += path.stat().st_size
    for directory in sorted({path.parent for path in modules}):
        for path in sorted(directory.iterdir()):
            name = str(path.relative_to(root))
            if name in files or path.name.startswith(".") or path.suffix == ".pyc":
                continue
            if not path.is_file() or not os.access(path, os.R_OK):
                continue
            size = path.stat().st_size
            if size > FILE_BYTES_MAX or total + size > TOTAL_BYTES_MAX:
                left_out.append(name)
                continue
            total += size
            files[name] = None
    return sorted(files), left_out
