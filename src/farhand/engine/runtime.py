"""The runtime: the part of farhand that engines run, as one zip that workers fetch by digest.

Where this farhand was compiled, as whatever pip installs is, the compiled files are in it too: a worker with
the same Python has nothing to compile before its first job. They say that their source need not be looked at,
since nobody changes it (PEP 552).
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import farhand_worker

_EPOCH = (1980, 1, 1, 0, 0, 0)
_HEADER_BYTES = 16
_UNCHECKED_HASH = (1).to_bytes(4, "little")
_FARHAND = Path(__file__).resolve().parent.parent
_WORKER = Path(farhand_worker.__file__).resolve().parent


def _files() -> Iterator[tuple[str, Path]]:
    yield "farhand/__init__.py", _FARHAND / "__init__.py"
    yield "farhand/errors.py", _FARHAND / "errors.py"
    yield "farhand/retrying.py", _FARHAND / "retrying.py"
    for path in (_FARHAND / "sdk").rglob("*.py"):
        yield f"farhand/{path.relative_to(_FARHAND).as_posix()}", path
    yield "farhand_worker/__init__.py", _WORKER / "__init__.py"
    yield "farhand_worker/compact.py", _WORKER / "compact.py"
    yield "farhand_worker/distributions.py", _WORKER / "distributions.py"
    yield "farhand_worker/manifest.py", _WORKER / "manifest.py"
    yield "farhand_worker/masking.py", _WORKER / "masking.py"


def build() -> bytes:
    """The zip; the same code, compiled by the same Python or not at all, gives the same bytes."""
    sources = sorted(_files())
    content = {name: path.read_bytes() for name, path in sources}
    content |= _compiled(sources, content)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in sorted(content):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _compiled(sources: list[tuple[str, Path]], content: dict[str, bytes]) -> dict[str, bytes]:
    """Every file's compiled form; none at all if one is missing or of an earlier source."""
    found: dict[str, bytes] = {}
    for name, path in sources:
        code = _code(path)
        if code is None:
            return {}
        place = importlib.util.cache_from_source(name, optimization="")
        digest = importlib.util.source_hash(content[name])
        found[place] = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + digest + code
    return found


def _code(path: Path) -> bytes | None:
    """The code of a module as it was compiled beside its source, if it was compiled from that."""
    try:
        compiled = Path(importlib.util.cache_from_source(str(path), optimization="")).read_bytes()
        source = path.stat()
    except (OSError, NotImplementedError):
        return None
    written = [int(part) & 0xFFFFFFFF for part in (0, source.st_mtime, source.st_size)]
    header = importlib.util.MAGIC_NUMBER + b"".join(part.to_bytes(4, "little") for part in written)
    return compiled[_HEADER_BYTES:] if compiled[:_HEADER_BYTES] == header else None
