"""A manifest: what decides what a flow does, file by file."""

from __future__ import annotations

import pytest

from farhand_worker.manifest import BadManifest, digest_file, read_manifest, write_manifest

A, B = digest_file(b"x = 1\n"), digest_file(b"")


def test_a_digest_does_not_see_line_ends_and_sees_everything_else() -> None:
    assert digest_file(b"x = 1\r\n") == A
    assert len({A, B, digest_file(b"x = 2\n"), digest_file(b"x = 1\r")}) == 4


def test_a_manifest_is_read_as_it_was_written_whatever_the_order() -> None:
    written = write_manifest({"b.py": B, "a/ü.py": A})
    assert written == write_manifest({"a/ü.py": A, "b.py": B})
    assert read_manifest(written) == {"a/ü.py": A, "b.py": B}
    assert read_manifest(b"") == {}


@pytest.mark.parametrize(
    "line",
    ["no digest", "a.py\0short", f"../a.py\0{A}", f"/etc/passwd\0{A}", f"a/../../b\0{A}", f"a//b\0{A}"],
)
def test_what_is_no_manifest_is_refused(line: str) -> None:
    with pytest.raises(BadManifest):
        read_manifest(line.encode())
