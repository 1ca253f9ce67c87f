"""A worker's own checkout: what of a flow's code it has, and a copy that is of one version or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farhand_worker.checkout import Checkout, Differs
from farhand_worker.manifest import digest_file

FILES = {"flow.py": b"import helper\n", "deep/helper.py": b"x = 1\n"}
MANIFEST = {name: digest_file(content) for name, content in FILES.items()}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return Checkout(root)


def test_a_checkout_has_the_code_whatever_else_lies_in_it(checkout: Checkout) -> None:
    (checkout.root / "notes.txt").write_text("mine")
    assert checkout.differing(MANIFEST) == []


def test_files_that_are_others_or_missing_are_named(checkout: Checkout) -> None:
    (checkout.root / "flow.py").write_bytes(b"import other\n")
    (checkout.root / "deep/helper.py").unlink()
    assert sorted(checkout.differing(MANIFEST)) == ["deep/helper.py", "flow.py"]


def test_other_line_ends_do_not_count(checkout: Checkout) -> None:
    (checkout.root / "flow.py").write_bytes(b"import helper\r\n")
    assert checkout.differing(MANIFEST) == []


def test_a_copy_is_read_only_and_holds_what_the_manifest_names(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.root / "notes.txt").write_text("mine")
    home = tmp_path / "home"
    checkout.copy(MANIFEST, home)
    copied = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in copied.items()} == FILES
    assert {path.stat().st_mode & 0o222 for path in [home, *home.rglob("*")]} == {0}


def test_a_file_that_is_another_gives_no_copy_at_all(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.root / "deep/helper.py").write_bytes(b"x = 2\n")
    with pytest.raises(Differs, match=r"deep/helper\.py") as caught:
        checkout.copy(MANIFEST, tmp_path / "home")
    assert caught.value.files == ["deep/helper.py"]
    assert sorted(os.listdir(tmp_path)) == ["checkout"]


def test_a_change_shows_in_a_look(checkout: Checkout) -> None:
    before = checkout.look(MANIFEST)
    assert checkout.look(MANIFEST) == before
    (checkout.root / "flow.py").write_bytes(b"import helper, os\n")
    assert checkout.look(MANIFEST) != before
    (checkout.root / "flow.py").unlink()
    assert checkout.look(MANIFEST)[1] == (0, 0, 0)
