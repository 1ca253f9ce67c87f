"""``farhand-worker.pyz``: the worker's program with the one package it needs, as a single file."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import farhand_worker

FILE_NAME = "farhand-worker.pyz"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_FIRST_LINE = b"#!/usr/bin/env python3\n"
_MAIN = b"import sys\n\nfrom farhand_worker.__main__ import program\n\nsys.exit(program())\n"
_LIBRARY = "websockets"


class Program(NamedTuple):
    """The file and its digest."""

    content: bytes
    digest: str


@functools.cache
def program() -> Program:
    """The file, built at the first request; the same code gives the same bytes."""
    content = build()
    return Program(content, f"sha256:{hashlib.sha256(content).hexdigest()}")


def build() -> bytes:
    """The archive, with a first line that lets it be started by its name.

    Sources only: a compiled file would be good for one Python on one kind of machine.
    """
    buffer = io.BytesIO()
    buffer.write(_FIRST_LINE)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, content in sorted(_files()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", _MAIN
    yield from _sources(Path(farhand_worker.__file__).resolve().parent)
    spec = find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{_LIBRARY} is not installed, and the worker's program needs it")
    yield from _sources(Path(spec.origin).parent)
    for path in metadata.files(_LIBRARY) or ():
        if path.name.startswith("LICENSE"):
            yield f"{_LIBRARY}/{path.name}", path.read_binary()


def _sources(package: Path) -> Iterator[tuple[str, bytes]]:
    for path in package.rglob("*.py"):
        yield f"{package.name}/{path.relative_to(package).as_posix()}", path.read_bytes()
