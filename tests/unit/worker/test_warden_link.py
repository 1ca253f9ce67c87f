"""The warden's program, also when the worker is one file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import farhand_worker
from farhand_worker.warden_link import program


def test_the_warden_is_the_file_beside_the_agent(tmp_path: Path) -> None:
    assert program(tmp_path).name == "warden.py"
    assert list(tmp_path.iterdir()) == []


def test_out_of_a_zip_the_warden_is_written_to_the_state_directory(tmp_path: Path) -> None:
    archive = tmp_path / "worker.pyz"
    package = Path(farhand_worker.__file__).parent
    with zipfile.ZipFile(archive, "w") as target:
        for path in package.glob("*.py"):
            target.write(path, f"farhand_worker/{path.name}")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom farhand_worker.warden_link import program\n"
        "print(program(Path(sys.argv[2])))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(archive), str(tmp_path)], capture_output=True, text=True, check=True
    )
    written = Path(result.stdout.strip())
    assert written == tmp_path / "warden.py"
    assert written.read_bytes() == (package / "warden.py").read_bytes()
