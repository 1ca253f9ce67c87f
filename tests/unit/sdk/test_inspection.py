"""What the inspecting child reports of a project."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FLOW = "from farhand import flow\n@flow\ndef {0}(n: int = 1):\n    '''Does {0}.'''\n"


def inspect(root: Path, **asked: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "farhand.sdk.inspection", str(root)],
        input=json.dumps({"inspect_s": 60, **asked}),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project"


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_flows_are_described(root: Path) -> None:
    write(
        root,
        "etl.py",
        "from farhand import flow\n"
        "@flow(name='nightly', retries=2, timeout='2h', device=['gpu'], runs_on='worker')\n"
        "def etl(n: int, day: str = 'x'):\n    '''Loads\n    it.\n\n    More.'''\n",
    )
    (found,) = inspect(root)["flows"]
    assert found["name"] == "nightly"
    assert found["entry"] == "etl:etl"
    assert found["file"] == "etl.py"
    assert found["description"] == "Loads it."
    assert found["schema"]["required"] == ["n"]
    asked = {"labels": ["gpu"], "policy": "require", "runs_on": "worker"}
    assert {name: found["ask"][name] for name in asked} == asked
    assert found["settings"] == {
        "retries": 2,
        "retry_delay": {"seconds": [0.0], "factor": 1.0, "cap_s": None, "jitter": 0.0},
        "crash_retries": 3,
        "timeout_s": 7200.0,
        "silence_timeout_s": None,
        "strict_lease": False,
        "isolated": False,
        "priority": None,
        "max_concurrent": None,
        "secrets": [],
        "hooks": [],
    }


def test_a_module_that_fails_hurts_no_other(root: Path) -> None:
    write(root, "good.py", "print('noise')\n" + FLOW.format("good"))
    write(root, "missing.py", "import nowhere_at_all\n" + FLOW.format("missing"))
    write(root, "leaves.py", FLOW.format("leaves") + "raise SystemExit(3)\n")
    write(root, "half.py", "from farhand import flow\ndef (")
    found = inspect(root)
    assert [flow["name"] for flow in found["flows"]] == ["good"]
    errors = {error["file"]: error["error"] for error in found["errors"]}
    assert set(errors) == {"missing.py", "leaves.py", "half.py"}
    assert "nowhere_at_all" in errors["missing.py"]


def test_a_module_that_calls_its_flow_as_it_is_imported_is_told_where_the_call_belongs(root: Path) -> None:
    """It would run once more with every import: in a server, on each worker, for each run."""
    write(root, "etl.py", FLOW.format("etl") + "    open('ran', 'w')\netl()\n")
    write(root, "fine.py", FLOW.format("fine") + "    return n\nif __name__ == '__main__':\n    fine()\n")
    found = inspect(root)
    assert [flow["name"] for flow in found["flows"]] == ["fine"]
    (trouble,) = found["errors"]
    words = 'Usage: etl calls etl as it is imported; put the call under `if __name__ == "__main__":`'
    assert (trouble["file"], trouble["error"]) == ("etl.py", words)
    assert not (root / "ran").exists()


def test_files_are_what_the_flows_reach_and_what_lies_beside_it(root: Path) -> None:
    write(root, "app/etl.py", "from . import helper\nimport shared.deep\n" + FLOW.format("etl"))
    write(root, "app/__init__.py", "")
    write(root, "app/helper.py", "from .inner import thing\n")
    write(root, "app/inner.py", "thing = 1\n")
    write(root, "app/data.csv", "a,b\n")
    write(root, "app/.hidden", "")
    write(root, "shared/deep.py", "")
    write(root, "elsewhere/unused.py", "")
    write(root, "tests/test_it.py", FLOW.format("test"))
    write(root, ".venv/lib.py", FLOW.format("venv"))
    write(root, "app/big.bin", "x" * 1024 * 1025)
    found = inspect(root)
    assert found["files"] == [
        "app/__init__.py",
        "app/data.csv",
        "app/etl.py",
        "app/helper.py",
        "app/inner.py",
        "shared/deep.py",
    ]
    assert found["left_out"] == [{"file": "app/big.bin", "size": 1024 * 1025}]
    assert [flow["entry"] for flow in found["flows"]] == ["app.etl:etl"]


def test_a_source_layout_is_imported_by_its_own_names(root: Path) -> None:
    write(root, "src/lib/__init__.py", "")
    write(root, "src/lib/flows.py", "from lib.more import x\n" + FLOW.format("one"))
    write(root, "src/lib/more.py", "x = 1\n")
    found = inspect(root)
    assert [flow["entry"] for flow in found["flows"]] == ["lib.flows:one"]
    assert "src/lib/more.py" in found["files"]


def test_a_flow_that_is_only_imported_belongs_to_its_own_module(root: Path) -> None:
    write(root, "one.py", FLOW.format("one"))
    write(root, "two.py", "from one import one\n" + FLOW.format("two"))
    assert sorted(flow["entry"] for flow in inspect(root)["flows"]) == ["one:one", "two:two"]


def test_odd_directories_are_survived(root: Path) -> None:
    write(root, "my-flows/etl.py", FLOW.format("etl"))
    os.symlink(root, root / "loop")
    assert [flow["entry"] for flow in inspect(root)["flows"]] == ["my-flows.etl:etl"]


def test_odd_names_and_layouts_are_imported_as_python_would(root: Path) -> None:
    """B135, B139: relative and lazy imports, no __init__, names of others, dashes, stale caches."""
    write(root, "queue.py", FLOW.format("queued"))
    write(root, "my-flows/daily.py", FLOW.format("daily"))
    write(root, "space/inner/lazy.py", FLOW.format("lazy") + "    from .near import y\n    return y\n")
    write(root, "space/inner/near.py", "y = 1\n")
    write(root, "__pycache__/stale.cpython-311.pyc", "not even compiled")
    write(root, "only/compiled.pyc", "not even compiled")
    found = inspect(root)
    assert found["errors"] == []
    entries = {flow["name"]: flow["entry"] for flow in found["flows"]}
    assert entries == {
        "queued": "queue:queued",
        "daily": "my-flows.daily:daily",
        "lazy": "space.inner.lazy:lazy",
    }
    assert "space/inner/near.py" in found["parts"]["space/inner/lazy.py"]
    assert not [name for name in found["files"] if name.endswith(".pyc")]


def test_what_a_file_says_now_counts_though_one_of_its_size_was_compiled_in_the_same_second(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for name in ("one", "uno"):
        write(root, "etl.py", FLOW.format(name))
        os.utime(root / "etl.py", (1_700_000_000, 1_700_000_000))
        assert [flow["name"] for flow in inspect(root)["flows"]] == [name]
        compileall.compile_file(root / "etl.py", quiet=1)  # as a script of the user's would


def test_nothing_compiled_is_left_in_a_project(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    write(root, "etl.py", "import helper\n" + FLOW.format("one"))
    write(root, "helper.py", "x = 1\n")
    inspect(root)
    assert sorted(path.name for path in root.rglob("*")) == ["etl.py", "helper.py"]
