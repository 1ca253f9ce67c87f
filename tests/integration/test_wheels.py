"""Both distributions build as wheels that hold what they need, and nothing of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import farhand_worker

ROOT = Path(__file__).resolve().parents[2]


def build(source: Path, directory: Path) -> set[str]:
    """The names in the wheel built from a copy of ``source``."""
    copy = directory / "source"
    shutil.copytree(
        source,
        copy,
        ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", ".hypothesis", "tests"),
    )
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory / "dist")],
        cwd=copy,
        check=True,
        capture_output=True,
        text=True,
    )
    (wheel,) = (directory / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def server_wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return build(ROOT, tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def worker_wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return build(ROOT / "worker", tmp_path_factory.mktemp("worker"))


def test_the_server_s_wheel_carries_the_example(server_wheel: set[str]) -> None:
    example = {
        f"farhand/examples/weather/{name}"
        for name in ("weather.py", "weather_chart.py", "seattle-weather.csv")
    }
    assert example <= server_wheel


def test_the_server_s_wheel_carries_every_file_of_the_package(server_wheel: set[str]) -> None:
    package = ROOT / "src" / "farhand"
    files = {
        f"farhand/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - server_wheel == set()


def test_the_worker_s_wheel_is_only_the_worker(worker_wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in worker_wheel}
    assert tops == {"farhand_worker", f"farhand_worker-{farhand_worker.__version__}.dist-info"}
    assert "farhand_worker/protocol/__init__.py" in worker_wheel


def test_both_wheels_carry_their_licence(server_wheel: set[str], worker_wheel: set[str]) -> None:
    for wheel in (server_wheel, worker_wheel):
        assert any(name.endswith("licenses/LICENSE") for name in wheel)
