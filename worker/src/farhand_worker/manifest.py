"""A manifest: name and digest of the files that decide what a flow does.

One line a file, sorted by name: ``NAME\\0DIGEST\\n``, the digest being SHA-256 in hexadecimal of the content
with ``\\r\\n`` read as ``\\n``, so that a checkout with other line ends compares equal. The digest of the
manifest itself is the flow's fingerprint. Standard library only: server, agent and engine read it alike.
"""

from __future__ import annotations

from typing import Dict, Mapping


class BadManifest(ValueError):
    """The text is no manifest."""


def digest_file(content: bytes) -> str:
    """The digest of one file's content, whatever its line ends."""
    from hashlib import sha256  # it loads OpenSSL, which an engine that only reads manifests has no use for

    return sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def write_manifest(files: Mapping[str, str]) -> bytes:
    """The manifest of name → digest."""
    lines = [f"{name}\0{files[name]}\n" for name in sorted(files)]
    return "".join(lines).encode("utf-8", "surrogateescape")


def read_manifest(content: bytes) -> Dict[str, str]:
    """Name → digest. Raises `BadManifest`, also for names that lead out of the directory."""
    files: Dict[str, str] = {}
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        if not line:
            continue
        name, mark, digest = line.partition("\0")
        parts = name.split("/")
        if not mark or len(digest) != 64 or name.startswith("/") or ".." in parts or "" in parts:
            raise BadManifest(f"{line[:80]!r} is no line of a manifest")
        files[name] = digest
    return files
