"""A write-ahead log needs memory that is shared by processes, which network file systems do not have."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import Usage

_NETWORK = frozenset(
    {
        *("afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"),
        *("fuse.ceph-fuse", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def kind_of(path: Path, mounts: str) -> str | None:
    """The type of the file system that ``path`` (absolute) lies on, by the text of /proc/self/mounts."""
    kind, longest = None, -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if path.is_relative_to(mount) and len(mount.parts) >= longest:  # a later mount hides an earlier
            kind, longest = fields[2], len(mount.parts)
    return kind


def network_kind(directory: Path) -> str | None:
    """The type of the network file system that ``directory`` lies on; None when it lies on none, as far as
    can be told here."""
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    kind = kind_of(directory.resolve(), mounts)
    return kind if kind in _NETWORK else None


def refuse_network(directory: Path) -> None:
    """Raise `Usage` when ``directory`` lies on a network file system."""
    kind = network_kind(directory)
    if kind is not None:
        raise Usage(
            f"{directory} lies on a network file system ({kind}), where the store would be damaged; "
            "choose a directory of this machine with --home"
        )
