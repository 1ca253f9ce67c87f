"""farhand-worker: the program that lends a machine to a farhand server by dialling out to it."""

from __future__ import annotations

__version__ = "0.1.0"
