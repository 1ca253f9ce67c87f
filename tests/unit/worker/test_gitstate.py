"""Branch and commit of a directory, from its .git alone."""

from __future__ import annotations

from pathlib import Path

from farhand_worker.gitstate import git_state

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_directory_without_git_has_no_state(tmp_path: Path) -> None:
    assert git_state(tmp_path) == ""


def test_a_branch_is_named_with_its_commit_wherever_git_keeps_it(tmp_path: Path) -> None:
    write(tmp_path / ".git/HEAD", "ref: refs/heads/feature/x\n")
    assert git_state(tmp_path) == "feature/x"  # no commit yet
    write(tmp_path / ".git/packed-refs", f"# pack-refs\n{COMMIT} refs/heads/feature/x\n")
    assert git_state(tmp_path) == "feature/x 0123456789ab"
    write(tmp_path / ".git/refs/heads/feature/x", "f" * 40 + "\n")
    assert git_state(tmp_path) == "feature/x ffffffffffff"
    (tmp_path / "below").mkdir()
    assert git_state(tmp_path / "below") == "feature/x ffffffffffff"


def test_a_commit_without_a_branch_stands_alone(tmp_path: Path) -> None:
    write(tmp_path / ".git/HEAD", COMMIT + "\n")
    assert git_state(tmp_path) == "0123456789ab"


def test_a_worktree_is_followed_to_the_repository(tmp_path: Path) -> None:
    main = tmp_path / "main/.git"
    write(main / "refs/heads/side", COMMIT + "\n")
    write(main / "worktrees/side/HEAD", "ref: refs/heads/side\n")
    write(main / "worktrees/side/commondir", "../..\n")
    write(tmp_path / "side/.git", f"gitdir: {main}/worktrees/side\n")
    assert git_state(tmp_path / "side") == "side 0123456789ab"
