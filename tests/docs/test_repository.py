"""What the repository must not hold, how small the product is, and what its script path leaves alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs.pages import DOCS, ROOT, repository_files

_PLACES = {str(ROOT), str(Path.home()), sys.prefix} - {"/"}
_MACHINE_PATH = re.compile(
    rb"(?<![\w.~$}>*-])(?:" + "|".join(rf"{re.escape(place)}/\w" for place in _PLACES).encode() + rb")"
)
# Written in pieces, so that this file does not hold what it looks for.
_REGISTRY_HOST = re.compile(
    rb"|".join(
        (
            rb"pypi\." + rb"org",
            rb"pythonhosted\." + rb"org",
            rb"npmjs\." + rb"(?:org|com)",
            rb"index-" + rb"url",
        )
    ),
    re.IGNORECASE,
)
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)\s]*)?\)")
SERVER_PACKAGES_MAX = 40


def holding(pattern: re.Pattern[bytes]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in repository_files()
        if (match := pattern.search(path.read_bytes()))
    ]


def test_no_file_holds_a_path_of_a_machine() -> None:
    assert holding(_MACHINE_PATH) == []


def test_no_file_names_a_package_registry() -> None:
    assert holding(_REGISTRY_HOST) == []


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("examples/*/*.md")]
    broken = [
        f"{page.relative_to(ROOT)} → {target}"
        for page in pages
        for target in _LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    listed = set(_LINK.findall((DOCS / "index.md").read_text(encoding="utf-8")))
    assert sorted({page.name for page in DOCS.glob("*.md")} - listed - {"index.md"}) == []


def installed(name: str, extra: str = "") -> set[str]:
    """The distribution and all it requires, as far as it is installed here."""
    found: set[str] = set()
    waiting = [(name, extra)]
    while waiting:
        name, extra = waiting.pop()
        for line in requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            key = requirement.name.lower().replace("_", "-")
            if key in found:
                continue
            try:
                version(key)
            except PackageNotFoundError:
                continue
            found.add(key)
            waiting.extend((key, wanted) for wanted in requirement.extras or {""})
    return found


def test_the_server_stays_within_its_number_of_packages() -> None:
    packages = installed("farhand")
    assert len(packages) <= SERVER_PACKAGES_MAX, sorted(packages)


def test_the_worker_needs_one_package() -> None:
    assert installed("farhand-worker") == {"websockets"}


SCRIPT = """
import sys
from farhand import flow, task

@task
def double(n: int) -> int:
    return 2 * n

@flow
def numbers(count: int = 3):
    return double.map(range(count)).result()

assert numbers() == [0, 2, 4]
print(" ".join(sys.modules))
"""


def test_a_script_that_runs_a_flow_loads_nothing_of_the_server(tmp_path: Path) -> None:
    script = tmp_path / "numbers_flow.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "FARHAND_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heavy = {"fastapi", "starlette", "pydantic", "sqlite3", "msgspec", "click", "websockets", "asyncio"}
    assert heavy & set(done.stdout.split()) == set()


@pytest.mark.parametrize("heavy", ["fastapi", "pydantic", "sqlite3", "msgspec"])
def test_the_command_line_loads_nothing_of_the_server_before_it_must(heavy: str) -> None:
    code = f"import sys\nimport farhand.cli\nsys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_constraints_hold_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.]*", line)] == []


def test_every_file_that_architecture_names_is_there() -> None:
    package, worker = ROOT / "src" / "farhand", ROOT / "worker" / "src" / "farhand_worker"
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert [name for name in named if not (package / name).exists() and not (worker / name).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
