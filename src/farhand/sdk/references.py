"""What a saved file is known by."""

from __future__ import annotations

from typing import Any, Dict, Tuple

DIGEST_PREFIX = "sha256:"


class ArtifactRef:
    """A saved file: its name, its content's digest (``sha256:…``) and its size in bytes.

    It travels in parameters and results as JSON, and `load_artifact` turns it into a path.
    """

    __slots__ = ("digest", "name", "size")

    def __init__(self, name: str, digest: str, size: int) -> None:
        self.name = name
        self.digest = digest
        self.size = size

    def as_dict(self) -> Dict[str, Any]:
        """The fields, ready for JSON."""
        return {"name": self.name, "digest": self.digest, "size": self.size}

    def _fields(self) -> Tuple[str, str, int]:
        return (self.name, self.digest, self.size)

    def __reduce__(self) -> Tuple[Any, Tuple[str, str, int]]:
        return (ArtifactRef, self._fields())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArtifactRef) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"ArtifactRef(name={self.name!r}, digest={self.digest!r}, size={self.size})"


def hex_of(digest: str) -> str:
    """The file name of a digest's blob. Raises ValueError when ``digest`` is none."""
    text = digest[len(DIGEST_PREFIX) :]
    if not digest.startswith(DIGEST_PREFIX) or len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"not a digest: {digest[:80]!r}")
    return text
