"""Archives unpacked into directories that are there whole or not at all. Standard library, Python 3.9.

A runtime is some two hundred small files, and a job waits for them while the agent's loop is busy: so as few
calls to the system as can be, since each lets go of the interpreter and has to wait for it again.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import List, Set

_IN_MEMORY_BYTES_MAX = 4 * 1024 * 1024
"""An archive, or a file in it, that is larger is read in pieces."""


def unpack(archive: Path, home: Path, read_only: bool) -> None:
    """Make ``home`` of a zip. Raises OSError, or BadZipFile, also for a name that leads out of it."""
    temporary = Path(tempfile.mkdtemp(dir=home.parent, prefix=".unpacking-"))
    try:
        small = archive.stat().st_size <= _IN_MEMORY_BYTES_MAX
        with zipfile.ZipFile(io.BytesIO(archive.read_bytes()) if small else archive) as bundle:
            directories = _extract(bundle, str(temporary), 0o444 if read_only else 0o666)
        if read_only:
            for directory in directories:
                os.chmod(directory, 0o555)
        os.rename(temporary, home)
        if read_only:
            os.chmod(home, 0o555)
    finally:
        if temporary.exists():
            remove_tree(temporary)


def remove_tree(path: Path) -> None:
    """Remove a directory, read-only or not."""
    for directory, _, _ in os.walk(path):
        os.chmod(directory, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def _extract(bundle: zipfile.ZipFile, home: str, mode: int) -> Set[str]:
    """Write every file of an archive; the directories below ``home`` that were made for them."""
    made = {home}
    for info in bundle.infolist():
        *above, name = _parts(info.filename)
        directory = _make(home, above, made)
        if not name:
            continue
        fd = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            _write(bundle, info, fd)
        finally:
            os.close(fd)
    return made - {home}


def _parts(name: str) -> List[str]:
    """The names on the way to a file; the last is empty for a directory."""
    parts = name.split("/")
    if not all(parts[:-1]) or parts == [""] or {".", ".."} & set(parts) or "\0" in name:
        raise zipfile.BadZipFile(f"{name!r} leads out of the archive's directory")
    return parts


def _make(home: str, above: List[str], made: Set[str]) -> str:
    directory = home
    for part in above:
        directory = f"{directory}/{part}"
        if directory not in made:
            os.mkdir(directory)
            made.add(directory)
    return directory


def _write(bundle: zipfile.ZipFile, info: zipfile.ZipInfo, fd: int) -> None:
    if info.file_size > _IN_MEMORY_BYTES_MAX:
        with bundle.open(info) as source, open(fd, "wb", closefd=False) as target:
            shutil.copyfileobj(source, target, _IN_MEMORY_BYTES_MAX)
        return
    rest = memoryview(bundle.read(info))
    while rest:
        rest = rest[os.write(fd, rest) :]
