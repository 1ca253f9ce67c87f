"""What is said when the program cannot be used as it was asked to be."""

from __future__ import annotations


class Usage(Exception):
    """An option, setting or surrounding cannot be used; the message says which, and what would be."""
