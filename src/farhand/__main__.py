"""``python -m farhand`` is the command ``farhand``."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main(prog_name="farhand")
