"""What is installed, as one digest."""

from __future__ import annotations

from pathlib import Path

from farhand_worker.distributions import environment_digest, installed


def test_distributions_are_read_off_their_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for path in ("one/Rare-1.0.dist-info", "one/rare", "two/old-2.egg-info", "two/rare-1.0.dist-info"):
        (tmp_path / path).mkdir(parents=True)
    assert installed([str(one), str(two), str(tmp_path / "absent")]) == ["old-2", "rare-1.0"]


def test_the_digest_changes_with_what_is_installed_and_with_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "rare-1.0.dist-info").mkdir()
    before = environment_digest([str(tmp_path)])
    (tmp_path / "rare.py").write_text("x = 1")
    assert environment_digest([str(tmp_path), str(tmp_path)]) == before
    (tmp_path / "rare-1.0.dist-info").rename(tmp_path / "rare-1.1.dist-info")
    assert environment_digest([str(tmp_path)]) != before


def test_what_pip_is_about_to_replace_is_not_installed(tmp_path: Path) -> None:
    for name in ("~arhand-0.1.0.dist-info", "farhand-0.1.0.dist-info"):
        (tmp_path / name).mkdir()
    assert installed([str(tmp_path)]) == ["farhand-0.1.0"]
