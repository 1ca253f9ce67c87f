"""A directory as an offer: inspected by a child, bundled by content, fingerprinted by part."""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from pathlib import Path

import pytest

from farhand.blobs import digest_of
from farhand.engine import packing, projectfile
from farhand.engine.packing import ChangedMeanwhile, Found, Packed, bundle, pack, pack_whole, read_files
from farhand.errors import Usage
from farhand_worker.manifest import read_manifest
from tests.harness import unprivileged

pytestmark = pytest.mark.anyio

FILES = {"b.py": b"print('b')\n", "a.py": b"print('a')\n", "data/cities.csv": b"city\r\nSeattle\r\n"}
FLOW = "from farhand import flow\n@flow\ndef {0}(n: int = 1):\n    '''Does {0}.'''\n    return n\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def flow_of(packed: Packed, name: str) -> Found:
    return next(flow for flow in packed.offer.flows if flow.name == name)


def fingerprints(packed: Packed) -> dict[str, str]:
    return {flow.name: flow.fingerprint for flow in packed.offer.flows}


def test_a_bundle_depends_on_names_and_bytes_alone() -> None:
    content = bundle(FILES)
    assert content == bundle(dict(reversed(FILES.items())))
    archive = zipfile.ZipFile(io.BytesIO(content))
    assert {name: archive.read(name) for name in archive.namelist()} == FILES
    assert archive.namelist() == sorted(FILES)
    assert bundle({**FILES, "a.py": b"print('A')\n"}) != content
    assert bundle({"c.py": b"x"}) != bundle({"d.py": b"x"})


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    contents, troubles = read_files(tmp_path, ["gone.py"])
    assert contents == {}
    assert [(trouble.file, trouble.error) for trouble in troubles] == [
        ("gone.py", "cannot be read: No such file or directory")
    ]


@pytest.mark.fault("3.40")
async def test_a_flow_is_fingerprinted_by_what_its_module_reaches(root: Path) -> None:
    """B138: helpers count, other flows' files do not; one bundle holds all."""
    write(root, "one.py", "from helper import x\n" + FLOW.format("one"))
    write(root, "two.py", FLOW.format("two"))
    write(root, "helper.py", "from deep.er import y\nx = 1\n")
    write(root, "deep/er.py", "y = 1\n")
    before = await pack_whole(root)
    assert set(before.sizes) == {"one.py", "two.py", "helper.py", "deep/er.py"}
    write(root, "deep/er.py", "y = 2\n")
    after = await pack_whole(root)
    assert fingerprints(after)["two"] == fingerprints(before)["two"]
    assert fingerprints(after)["one"] != fingerprints(before)["one"]
    assert after.offer.bundle != before.offer.bundle


async def test_data_beside_a_module_and_included_files_are_part_of_it(root: Path) -> None:
    write(root, "one.py", FLOW.format("one"))
    write(root, "table.csv", "1\n")
    write(root, "models/a.bin", "x" * (1024 * 1024 + 1))
    write(root, "models/b.bin", "b")
    write(root, "farhand.toml", '[project]\nname = "sums"\ninclude = ["models/a.*"]\n')
    first = await pack_whole(root)
    assert first.name == "sums"
    assert set(first.sizes) == {"one.py", "table.csv", "models/a.bin"}
    prints = {fingerprints(first)["one"]}
    for name in ("table.csv", "models/a.bin"):
        write(root, name, "2\n")
        prints.add(fingerprints(await pack_whole(root))["one"])
    assert len(prints) == 3


async def test_a_comment_is_another_version_and_a_line_end_is_not(root: Path) -> None:
    """B130: a fingerprint is of bytes; what runs again is decided by calls and their arguments."""
    write(root, "one.py", FLOW.format("one"))
    first = fingerprints(await pack_whole(root))["one"]
    write(root, "one.py", FLOW.format("one") + "# a comment\n")
    assert fingerprints(await pack_whole(root))["one"] != first
    (root / "one.py").write_bytes(FLOW.format("one").replace("\n", "\r\n").encode())
    assert fingerprints(await pack_whole(root))["one"] == first


async def test_only_modules_whose_files_changed_are_imported_again(root: Path) -> None:
    marks = root.parent / "marks"
    line = f"open({str(marks)!r}, 'a').write(__name__ + ' ')\n"
    write(root, "one.py", line + FLOW.format("one"))
    write(root, "two.py", line + FLOW.format("two"))
    first = await pack_whole(root)
    write(root, "two.py", line + FLOW.format("zwei"))
    second = [packed async for packed in pack(root, before=first)][-1]
    assert sorted(marks.read_text().split()) == ["one", "two", "two"]
    assert [flow.name for flow in second.offer.flows] == ["one", "zwei"]
    assert flow_of(second, "one").fingerprint == flow_of(first, "one").fingerprint


async def test_modules_that_hang_end_or_fail_are_named_and_hurt_no_other(root: Path) -> None:
    write(root, "a_hangs.py", FLOW.format("hangs") + "import time\ntime.sleep(1000)\n")
    write(root, "b_spins.py", FLOW.format("spins") + "while True: pass\n")
    write(root, "c_exits.py", FLOW.format("exits") + "import os\nos._exit(0)\n")
    write(root, "d_leaves.py", FLOW.format("leaves") + "raise SystemExit(3)\n")
    write(root, "e_killed.py", FLOW.format("killed") + "import os\nos.kill(os.getpid(), 9)\n")
    write(root, "f_broken.py", "from farhand import flow\ndef (")
    write(root, "z_good.py", "print('noise')\n" + FLOW.format("good"))
    began = time.monotonic()
    packed = await pack_whole(root, inspect_s=1.0)
    assert time.monotonic() - began < 20
    assert [flow.name for flow in packed.offer.flows] == ["good"]
    errors = {trouble.file: trouble.error for trouble in packed.offer.errors}
    assert errors["a_hangs.py"] == errors["b_spins.py"] == "did not finish importing in 1 s"
    assert errors["c_exits.py"] == "the process ended while importing: exit 0"
    assert errors["d_leaves.py"] == "SystemExit: 3"
    assert errors["e_killed.py"] == "the process ended while importing: signal 9"
    assert errors["f_broken.py"].startswith("SyntaxError")


async def test_what_imports_is_told_before_what_hangs_is_given_up(root: Path) -> None:
    write(root, "good.py", FLOW.format("good"))
    write(root, "hangs.py", FLOW.format("hangs") + "import time\ntime.sleep(1000)\n")
    told = pack(root, inspect_s=60.0)
    first = await anext(told)
    assert [flow.name for flow in first.offer.flows] == ["good"]
    assert [(t.file, t.error) for t in first.offer.errors] == [("hangs.py", "is still being imported")]
    await told.aclose()


async def test_a_file_that_is_not_python_matters_only_when_it_speaks_of_farhand(root: Path) -> None:
    write(root, "old.py", "print 'python 2'\n")
    write(root, "good.py", FLOW.format("good"))
    assert (await pack_whole(root)).offer.errors == []


async def test_links_are_followed_once_and_large_files_are_named(root: Path) -> None:
    """B140."""
    outside = root.parent / "outside"
    write(outside, "shared.py", "y = 1\n")
    write(root, "good.py", "import linked, package.shared\n" + FLOW.format("good"))
    (root / "linked.py").symlink_to(outside / "shared.py")
    (root / "package").symlink_to(outside)
    (root / "loop").symlink_to(root)
    with (root / "big.bin").open("wb") as big:
        os.truncate(big.fileno(), 10 * 1024**3)
    began = time.monotonic()
    packed = await pack_whole(root)
    assert time.monotonic() - began < 15
    assert set(packed.sizes) == {"good.py", "linked.py", "package/shared.py"}
    assert [(item.file, item.size) for item in packed.offer.left_out] == [("big.bin", 10 * 1024**3)]
    assert packed.offer.errors == []


PACKING = """
import asyncio, json, sys
from pathlib import Path
from farhand.engine.packing import pack_whole
offer = asyncio.run(pack_whole(Path(sys.argv[1]))).offer
print(json.dumps([[flow.name for flow in offer.flows], [trouble.file for trouble in offer.errors]]))
"""


def test_a_module_that_may_not_be_read_is_named(root: Path) -> None:
    """B140."""
    write(root, "good.py", FLOW.format("good"))
    write(root, "secret.py", FLOW.format("secret"))
    (root / "secret.py").chmod(0)
    assert json.loads(unprivileged.python(PACKING, str(root))) == [["good"], ["secret.py"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[project]\nname = 'Two Words'\n", "does not match"),
        ("[project]\ncolour = 'red'\n", "unknown settings under .project.: colour"),
        ("[project]\ninclude = '*.csv'\n", "a list of globs"),
        ("[project]\ninclude = ['../secrets']\n", "inside the project"),
        ("[project]\ninclude = ['/etc/*']\n", "inside the project"),
        ("project = 1\n", "no table"),
        ("[project\n", "cannot be read"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, "farhand.toml", text)
    with pytest.raises(Usage, match=said):
        projectfile.read(tmp_path)


async def test_the_manifest_of_a_flow_is_named_by_its_fingerprint(root: Path) -> None:
    write(root, "one.py", "import helper\n" + FLOW.format("one"))
    write(root, "helper.py", "x = 1\n")
    write(root, "apart/two.py", FLOW.format("two"))
    write(root, "cities.csv", "Seattle\n")
    packed = await pack_whole(root)
    manifest = packed.manifests[fingerprints(packed)["one"]]
    assert digest_of(manifest) == fingerprints(packed)["one"]
    assert list(read_manifest(manifest)) == ["cities.csv", "helper.py", "one.py"]
    assert set(packed.manifests) == set(fingerprints(packed).values())


@pytest.mark.fault("3.39")
async def test_other_line_ends_are_the_same_code(root: Path) -> None:
    write(root, "one.py", FLOW.format("one"))
    unix = await pack_whole(root)
    (root / "one.py").write_bytes(FLOW.format("one").replace("\n", "\r\n").encode())
    windows = await pack_whole(root)
    assert fingerprints(windows) == fingerprints(unix)
    assert windows.offer.bundle != unix.offer.bundle  # which holds the bytes as they are


async def test_code_that_changes_while_it_is_read_is_not_offered(root: Path, monkeypatch) -> None:
    write(root, "one.py", "import helper\n" + FLOW.format("one"))
    write(root, "helper.py", "x = 1\n")
    read = packing.read_files

    def interrupted(root: Path, files: list[str]):
        write(root, "helper.py", "x = 2\n")
        return read(root, files)

    monkeypatch.setattr(packing, "read_files", interrupted)
    with pytest.raises(ChangedMeanwhile, match=r"one\.py"):
        [packed async for packed in pack(root)]
    assert (await pack_whole(root)).sizes["helper.py"] == 6  # by now it is at rest


async def test_a_flow_knows_the_commit_it_was_read_at(root: Path) -> None:
    write(root, "one.py", FLOW.format("one"))
    write(root, ".git/HEAD", "ref: refs/heads/main\n")
    write(root, ".git/refs/heads/main", "0123456789abcdef" * 2 + "01234567\n")
    assert flow_of(await pack_whole(root), "one").git == "main 0123456789ab"


@pytest.mark.fault("3.41")
async def test_an_import_that_may_fail_counts_like_any_other(root: Path) -> None:
    guarded = "try:\n    import fast as impl\nexcept ImportError:\n    import slow as impl\n"
    write(root, "one.py", guarded + FLOW.format("one"))
    write(root, "fast.py", "import only_there\n")
    write(root, "slow.py", "x = 1\n")
    first = await pack_whole(root)
    assert first.offer.errors == []
    manifest = read_manifest(first.manifests[fingerprints(first)["one"]])
    assert list(manifest) == ["fast.py", "one.py", "slow.py"]
    write(root, "fast.py", "import only_there as only\n")
    assert fingerprints(await pack_whole(root)) != fingerprints(first)


@pytest.mark.fault("3.42")
async def test_a_data_file_beside_a_module_is_part_of_what_its_flows_do(root: Path) -> None:
    write(root, "one.py", "import deep.model\n" + FLOW.format("one"))
    write(root, "deep/model.py", "x = 1\n")
    write(root, "deep/weights.json", "[1]")
    write(root, "elsewhere/notes.txt", "not beside anything")
    first = await pack_whole(root)
    assert list(first.sizes) == ["deep/model.py", "deep/weights.json", "one.py"]
    write(root, "deep/weights.json", "[2]")
    second = await pack_whole(root)
    assert fingerprints(second) != fingerprints(first)
    (root / "deep/huge.bin").write_bytes(bytes(2 * 1024 * 1024))
    third = await pack_whole(root)
    assert fingerprints(third) == fingerprints(second)
    assert [item.file for item in third.offer.left_out] == ["deep/huge.bin"]
