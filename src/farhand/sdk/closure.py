"""Which files a project's flows reach: by import, from the text alone, and what lies beside them."""

from __future__ import annotations

import ast
import hashlib
import os
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from .loading import import_roots

FILE_BYTES_MAX = 1024 * 1024
TOTAL_BYTES_MAX = 16 * 1024 * 1024
ENTRIES_MAX = 20_000
_SETTINGS = frozenset({"conftest.py", "farhand.toml", "provisioners.json"})
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


def module_name(root: Path, path: Path) -> str:
    """The name under which a file of a project is imported."""
    base = next(Path(base) for base in reversed(import_roots(root)) if path.is_relative_to(base))
    parts = list(path.relative_to(base).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def version_of(part: Iterable[str], digests: Mapping[str, str]) -> str:
    """The hash of a part of a project; files that have no digest count as missing."""
    total = hashlib.sha256()
    for name in part:
        total.update(f"{name}\0{digests.get(name, '')}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def digests_of(root: Path, names: Iterable[str]) -> Dict[str, str]:
    """Name → SHA-256 of the files, byte by byte; those that cannot be read are left out."""
    digests: Dict[str, str] = {}
    for name in set(names):
        try:
            digests[name] = hashlib.sha256((root / name).read_bytes()).hexdigest()
        except OSError:
            continue  # it went away, or may not be read: whoever packs it says so
    return digests


def _is_apart(name: str) -> bool:
    """Whether a file is no part of what flows need: hidden, a test, compiled, or farhand's own settings."""
    if name.startswith(".") or name.endswith(".pyc") or name in _SETTINGS:
        return True
    return name.startswith("test_") and name.endswith(".py")


class Tree:
    """The files of a project: its modules, what each of them reaches, what lies beside them.

    Links are followed, each directory once. A project of more than `ENTRIES_MAX` entries is not read to
    the end: ``unscanned`` names the directory at which that was given up.
    """

    def __init__(self, root: Path, include: Sequence[str] = ()) -> None:
        self.root = root
        self.unscanned = ""
        self._parsed: Dict[Path, Source] = {}
        self.included = sorted({path for glob in include for path in root.glob(glob) if path.is_file()})

    def name(self, path: Path) -> str:
        """The path within the project."""
        return path.relative_to(self.root).as_posix()

    def python_files(self) -> Iterator[Path]:
        """The modules, without hidden places, environments and tests."""
        for directory, names in self.walk():
            for name in sorted(names):
                if name.endswith(".py") and not _is_apart(name):
                    yield directory / name

    def walk(self) -> Iterator[Tuple[Path, List[str]]]:
        """Each directory that may hold modules, with the names of its files."""
        seen: Set[Tuple[int, int]] = set()
        entries = 0
        for directory, subdirectories, names in os.walk(self.root, followlinks=True):
            status = os.stat(directory)
            place = Path(directory)
            if (status.st_dev, status.st_ino) in seen or (place != self.root and "pyvenv.cfg" in names):
                subdirectories[:] = []
                continue
            seen.add((status.st_dev, status.st_ino))
            entries += len(subdirectories) + len(names)
            if entries > ENTRIES_MAX:
                self.unscanned = self.name(place)
                return
            subdirectories[:] = sorted(
                name for name in subdirectories if not name.startswith(".") and name not in _SKIPPED | _TESTS
            )
            yield place, names

    def reached(self, starts: Iterable[Source]) -> Set[Path]:
        """The files that the sources import, directly or not, with the packages they lie in."""
        found: Set[Path] = set()
        waiting = list(starts)
        while waiting:
            source = waiting.pop()
            if source.path in found:
                continue
            found.add(source.path)
            self._parsed.setdefault(source.path, source)
            for name in (source.module, *source.imports):
                for path, module in _files_of(self.root, name):
                    if path not in found:
                        waiting.append(self._source(path, module))
        return found

    def part(self, source: Source) -> List[str]:
        """The files that decide what the flows of one module do: what it reaches, and the data beside it."""
        modules = self.reached([source])
        beside, _ = self._neighbours(modules)
        data = [path for path, _ in beside if path.suffix != ".py"]
        return sorted({self.name(path) for path in (*modules, *data, *self.included)})

    def files(self, sources: Iterable[Source]) -> Tuple[List[str], List[Dict[str, Any]]]:
        """(files, left out): all modules, what is included, and the small files beside the modules."""
        modules = self.reached(sources)
        beside, left_out = self._neighbours(modules)
        names = {self.name(path) for path in (*modules, *self.included)}
        total = sum((self.root / name).stat().st_size for name in names)
        for path, size in beside:
            if self.name(path) in names:
                continue
            if total + size > TOTAL_BYTES_MAX:
                left_out.append((path, size))
                continue
            total += size
            names.add(self.name(path))
        large = [{"file": self.name(path), "size": size} for path, size in left_out]
        return sorted(names), [item for item in large if item["file"] not in names]

    def _neighbours(self, modules: Set[Path]) -> Tuple[List[Tuple[Path, int]], List[Tuple[Path, int]]]:
        """(small, large) files in the directories of modules, with their sizes."""
        small: List[Tuple[Path, int]] = []
        large: List[Tuple[Path, int]] = []
        for directory in sorted({path.parent for path in modules}):
            for path in sorted(directory.iterdir()):
                if path in modules or _is_apart(path.name):
                    continue
                if not path.is_file() or not os.access(path, os.R_OK):
                    continue
                size = path.stat().st_size
                (large if size > FILE_BYTES_MAX else small).append((path, size))
        return small, large

    def _source(self, path: Path, module: str) -> Source:
        if path not in self._parsed:
            self._parsed[path] = _parsed(path, module)
        return self._parsed[path]


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
