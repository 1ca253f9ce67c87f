"""Finding a flow or task in its bundle."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, List

from farhand.errors import NotFound

from .eager import only_reading


def import_roots(root: Path) -> List[str]:
    """The directories a project's modules are imported from: its own, and ``src`` if that is no package."""
    source = root / "src"
    is_source = source.is_dir() and not (source / "__init__.py").exists()
    return [str(root), str(source)] if is_source else [str(root)]


def load(entry: str, root: Path) -> Any:
    """The object that ``module:qualname`` names. Raises what importing raises, and `NotFound`."""
    module_name, _, qualname = entry.partition(":")
    found: Any = import_project_module(module_name, root)
    for part in qualname.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise NotFound(f"{module_name} has no {qualname}")
    return found


def import_project_module(name: str, root: Path) -> Any:
    """The project's own module of that name, also where another one has been imported under it."""
    module = sys.modules.get(name) or only_reading(name, importlib.import_module, name)
    origin = getattr(module, "__file__", None)
    if origin is not None and not _is_below(origin, str(root)):
        for base in import_roots(root):
            path = os.path.join(base, *name.split(".")) + ".py"
            if os.path.exists(path):
                return _from_file(name, path)
    return module


def _from_file(name: str, path: str) -> Any:
    """A project's module that has the name of one which was imported before it."""
    spec = PathFinder.find_spec(name, [os.path.dirname(path)])
    if spec is None or spec.loader is None:
        raise NotFound(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    only_reading(name, spec.loader.exec_module, module)
    return module


def forget_modules_of(root: Path) -> None:
    """Drop every module that was imported from a bundle, so that another one's can take their names."""
    base = str(root)
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        paths = [origin] if origin else list(getattr(module, "__path__", None) or ())
        if any(_is_below(path, base) for path in paths):
            del sys.modules[name]
    for path in [path for path in sys.path_importer_cache if _is_below(path, base)]:
        del sys.path_importer_cache[path]
    importlib.invalidate_caches()


def _is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(base + os.sep)
