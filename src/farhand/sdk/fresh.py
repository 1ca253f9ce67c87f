"""Modules compiled from what their files say now, whatever was compiled of them before.

Python takes a compiled module for current when its source has the size and the second of change that it had
then; a file that is edited twice within a second may have both, and say something else. So a project that is
being read is compiled from its sources, and nothing compiled is written beside them.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from typing import Any, Dict

_INSTALLED = frozenset({"site-packages", "dist-packages"})


class _FromSource(SourceFileLoader):
    """Loads modules without a look at what was compiled of them."""

    def path_stats(self, path: Any) -> Dict[str, Any]:
        raise OSError(
            "without these, compiled modules are neither read nor written (importlib.abc.SourceLoader)"
        )


def import_from_sources(root: str) -> None:
    """Let whatever is imported from below ``root`` be compiled anew; installed packages are as always."""
    finder = FileFinder.path_hook((ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES))

    def hook(path: str) -> Any:
        if path != root and not path.startswith(root + os.sep):
            raise ImportError(path)
        if _INSTALLED.intersection(path.split(os.sep)):
            raise ImportError(path)
        return finder(path)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()
