"""The tutorial does what it says: its files are written and its commands run, in its order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import page
from tests.harness.deployment import deployed, environment

_BLOCK = re.compile(r"^```(python|sh)(?: (\w+)=(\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    blocks = _BLOCK.findall(page("tutorial.md"))
    for _, _, name, text in (block for block in blocks if block[0] == "python"):
        (project / name).write_text(text)
    commands = [block for block in blocks if block[0] == "sh"]
    assert len(commands) >= 6
    farhand = f'farhand() {{ "{sys.executable}" -m farhand "$@"; }}\nset -e\n'
    with deployed(tmp_path, project=project) as deployment:
        for _, _, code, text in commands:
            done = subprocess.run(
                ["bash", "-c", farhand + text],
                cwd=project,
                env=environment(deployment.home, deployment.times),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == int(code or 0), text + done.stdout + done.stderr
        assert (project / "report.csv").read_text() == "mean,3.5\n"
        assert len((project / "sweep.csv").read_text().splitlines()) == 4
