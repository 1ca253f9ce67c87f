"""The program as a whole: its table, its help, its errors and exit codes."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import click
import pytest

from farhand.cli.program import COMMANDS, main

from .conftest import Call


def test_help_lists_every_command_without_importing_one() -> None:
    script = (
        "import sys\nfrom farhand.cli.program import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'httpx2', 'rich', 'fastapi', 'uvicorn', 'msgspec', 'sqlite3', 'asyncio', 'farhand.sdk'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for entry in COMMANDS:
        assert entry.name in done.stdout


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_table_says_of_a_command_what_it_says_of_itself(entry) -> None:
    command = main.get_command(click.Context(main), entry.name)  # type: ignore[attr-defined]
    assert command is not None
    assert command.get_short_help_str(200) == entry.help


def test_garbage_is_collected_again_once_the_command_is_loaded() -> None:
    gc.disable()
    try:
        main.get_command(click.Context(main), "runs")  # type: ignore[attr-defined]
        assert gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["runs", "nothing"], ["runs", "show"], ["runs", "list", "--limit", "0"]]
)
def test_a_wrong_call_is_2(call: Call, arguments: list[str]) -> None:
    assert call(*arguments).exit_code == 2


def test_no_server_is_3_and_one_sentence(call: Call, home: Path) -> None:
    done = call("runs", "list")
    assert done.exit_code == 3
    assert done.stdout == ""
    assert done.stderr.startswith("farhand: no server runs on ")
    assert done.stderr.count("\n") == 1


def test_a_real_process_ends_with_the_same_codes(home: Path) -> None:
    def code(*arguments: str) -> int:
        return subprocess.run([sys.executable, "-m", "farhand", *arguments], capture_output=True).returncode

    assert code("--version") == 0
    assert code("nothing") == 2
    assert code("runs", "list") == 3
    assert code("stop") == 3


def test_output_that_nobody_reads_to_its_end_is_no_error(home: Path, server: str) -> None:
    line = f"{sys.executable} -m farhand runs list --json | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True)
    assert done.stderr == ""


EARLY = """
import sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from farhand.cli import main
main()
"""


def test_an_interrupt_while_the_program_is_loaded_is_one_sentence_and_130() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "farhand: interrupted\n")


@pytest.mark.parametrize(
    "code",
    ["from farhand.cli import main; main()", "from farhand import flow", "import farhand; farhand.flow"],
)
def test_a_system_that_it_does_not_run_on_is_told_in_one_sentence(code: str) -> None:
    """B155."""
    missing = "import sys; sys.modules['fcntl'] = None; sys.platform = 'win32'; "
    ended = subprocess.run([sys.executable, "-c", missing + code], capture_output=True, text=True)
    assert ended.returncode == (2 if "cli" in code else 1)
    assert ended.stderr.endswith("farhand runs on Linux and macOS; on Windows, run it in WSL\n")
