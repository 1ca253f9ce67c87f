"""Files that a run saves, and reads again, by the digest of their content."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Optional, Union

from farhand.errors import FarhandError, NotFound, Usage

from . import events
from .blobfiles import read_chunks, write_blob
from .context import Recorder, current
from .references import ArtifactRef, hex_of

_DEFAULT_TYPE = "application/octet-stream"


def save_artifact(
    content: Union[str, os.PathLike[str], bytes],
    name: Optional[str] = None,
    media_type: Optional[str] = None,
) -> ArtifactRef:
    """Save a file (a path, or its bytes) with the run; the reference may be returned and passed on.

    The name defaults to the file's, the media type to what the name suggests.
    """
    if isinstance(content, (bytes, bytearray, memoryview)):
        if name is None:
            raise Usage("save_artifact(bytes) needs a name")
        chunks: Any = (bytes(content),)
    else:
        path = Path(content)
        name = name or path.name
        chunks = read_chunks(path)
    frame = current()
    recorder = frame.run.recorder if frame is not None else _outside
    digest, size = write_blob(recorder.blobs_or_temporary(), chunks, recorder.synced)
    if frame is not None and recorder.recording:
        body = {
            "name": name,
            "digest": digest,
            "size": size,
            "at": time.time(),
            "media_type": media_type or _media_type(name),
            "task": frame.key or None,
            "nested": frame.nested,
        }
        recorder.write(events.line("artifact", body, [digest]))
    return ArtifactRef(name, digest, size)


def _media_type(name: str) -> str:
    import mimetypes  # noqa: PLC0415 - only for those who save files

    return mimetypes.guess_type(name)[0] or _DEFAULT_TYPE


def load_artifact(reference: Union[ArtifactRef, str]) -> Path:
    """The path of a saved file's content, verified; it is read-only. Raises `NotFound`."""
    digest = reference.digest if isinstance(reference, ArtifactRef) else reference
    frame = current()
    recorder = frame.run.recorder if frame is not None else _outside
    try:
        hex_of(digest)
    except ValueError as error:
        raise Usage(str(error)) from None
    try:
        return recorder.blob_path(digest)
    except (OSError, FarhandError) as error:
        raise NotFound(f"the content of {digest} is not here: {error}") from error


_outside = Recorder()
"""Where code outside of any run saves, as in a unit test of a task."""
