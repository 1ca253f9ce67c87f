"""A store on a network file system is refused before anything is written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from farhand.errors import Usage
from farhand.store import filesystem

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
host:/export /home nfs4 rw 0 0
/dev/sdb1 /home/local\\040disk xfs rw 0 0
tmpfs /tmp tmpfs rw 0 0
host:/other /tmp nfs rw 0 0
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/me/.farhand", "nfs4"),
        ("/homes", "ext4"),
        ("/home/local disk/x", "xfs"),
        ("/tmp/x", "nfs"),
    ],
)
def test_the_innermost_and_latest_mount_decides(path, kind):
    assert filesystem.kind_of(Path(path), MOUNTS) == kind


def test_a_network_file_system_is_refused_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(filesystem, "kind_of", lambda path, mounts: "nfs4")
    with pytest.raises(Usage, match=r"nfs4.*--home"):
        filesystem.refuse_network(tmp_path)


def test_a_disk_of_this_machine_is_taken(tmp_path):
    filesystem.refuse_network(tmp_path)
