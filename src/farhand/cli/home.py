"""Where the home is."""

from __future__ import annotations

import os
from pathlib import Path


def home_of(home: Path | None) -> Path:
    """The home that is meant: ``--home``, FARHAND_HOME, ~/.farhand."""
    return (home or Path(os.environ.get("FARHAND_HOME") or "~/.farhand")).expanduser().absolute()
