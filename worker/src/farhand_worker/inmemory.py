"""A small file that goes on in memory, where its disk takes nothing more."""

from __future__ import annotations

import fcntl
import os
from typing import Optional

COPIED_BYTES_MAX = 8 * 1024 * 1024
"""What is larger stays on the disk."""


def copied_to_memory(path: str) -> Optional[int]:
    """A file without a name that has the content of ``path`` (none, if that is not there) and is appended to.

    None where there can be none: it is Linux that has such files.
    """
    create = getattr(os, "memfd_create", None)
    if create is None:
        return None
    content = b""
    try:
        if os.path.exists(path):
            with open(path, "rb") as file:
                content = file.read(COPIED_BYTES_MAX + 1)
    except OSError:
        return None
    if len(content) > COPIED_BYTES_MAX:
        return None
    fd: int = create("farhand-spool")
    while content:
        content = content[os.write(fd, content) :]
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd
