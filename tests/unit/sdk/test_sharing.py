"""Paths that mean a file on one machine only are found where they cross, and no others."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from farhand.sdk.sharing import LOOKED_AT_MAX, unshared

CWD = Path("/scratch/job")


@pytest.mark.parametrize(
    ("value", "shared", "told"),
    [
        ("/data/text", [], []),
        (Path("/data/a"), [], ["/data/a"]),
        (Path("/data/a"), ["/data"], []),
        (Path("/data"), ["/data"], []),
        (Path("/database/a"), ["/data"], ["/database/a"]),
        (Path("/data/../etc/a"), ["/data"], ["/data/../etc/a"]),
        (PurePosixPath("/b"), ["/data", "/mnt"], ["/b"]),
        (Path("a"), ["/data"], ["a"]),
        (Path("a"), ["/scratch"], []),
        ([[Path("/b")], {"x": (Path("/a"), 1)}, {Path("/c"), "d"}], [], ["/a", "/b", "/c"]),
        ([list(range(10 * LOOKED_AT_MAX)), Path("/late")], [], ["/late"]),
        (None, [], []),
    ],
)
def test_only_a_path_outside_every_shared_directory_is_told(
    value: Any, shared: list[str], told: list[str]
) -> None:
    assert unshared(value, shared, lambda: CWD) == told
