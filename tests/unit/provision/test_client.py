"""Where the connection to a login node is kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from farhand.provision.slurm.client import short_directory


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_stands_for_a_long_path_is_found_again_and_is_this_users_alone(temporary: Path) -> None:
    home = Path("/home/somebody") / ("deep/" * 30)
    first = short_directory(home)
    assert first == short_directory(home)
    assert first.stat().st_mode & 0o777 == 0o700
    assert first != short_directory(home / "other")
    assert len(str(first.relative_to(temporary))) < 40


@pytest.mark.parametrize("how", ["open to others", "a link"])
def test_a_directory_that_others_could_have_made_is_not_used(temporary: Path, how: str) -> None:
    home = Path("/home/somebody")
    taken = short_directory(home)
    if how == "a link":
        taken.rmdir()
        (temporary / "theirs").mkdir()
        taken.symlink_to(temporary / "theirs")
    else:
        taken.chmod(0o777)
    chosen = short_directory(home)
    assert chosen != taken
    assert chosen.stat().st_mode & 0o777 == 0o700
