"""The runtime: the part of farhand that engines run, as one zip that workers fetch by digest."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import farhand_worker

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FARHAND = Path(__file__).resolve().parent.parent
_WORKER = Path(farhand_worker.__file__).resolve().parent


def _files() -> Iterator[tuple[str, Path]]:
    yield "farhand/__init__.py", _FARHAND / "__init__.py"
    yield "farhand/errors.py", _FARHAND / "errors.py"
    yield "farhand/retrying.py", _FARHAND / "retrying.py"
    for path in (_FARHAND / "sdk").rglob("*.py"):
        yield f"farhand/{path.relative_to(_FARHAND).as_posix()}", path
    yield "farhand_worker/__init__.py", _WORKER / "__init__.py"
    yield "farhand_worker/distributions.py", _WORKER / "distributions.py"
    yield "farhand_worker/manifest.py", _WORKER / "manifest.py"
    yield "farhand_worker/masking.py", _WORKER / "masking.py"
    yield "farhand_worker/protocol.py", _WORKER / "protocol.py"


def build() -> bytes:
    """The zip; the same code gives the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, path in sorted(_files()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
