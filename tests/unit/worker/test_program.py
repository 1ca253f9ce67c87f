"""The program itself: what it refuses before it dials, in one line and with an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farhand_worker.__main__ import main

HERE = ["--url", "http://127.0.0.1:1"]


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FARHAND_WORKER_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "a token is needed: --token-file FILE, FARHAND_WORKER_TOKEN"),
        (["--parallel", "none"], "--parallel: 'none' is no whole number from 1"),
        (["--artifact-url", "http://10.0.0.1"], "http://10.0.0.1 is not encrypted: use wss:// (https:// for"),
        (["--cwd", "/no/where"], "--cwd: /no/where is no directory"),
        (["--token-file", "nowhere.token"], "cannot be read from nowhere.token: No such file or directory"),
        (["--token-fd", "250"], "cannot be read from descriptor 250"),
        (["--python", "/no/python"], "--python /no/python is no Python that runs here: No such file"),
        (["--python", "true"], "--python true is no Python that runs here: it did not say its version"),
        (["--python", "false"], "--python false is no Python that runs here: it ended with exit 1"),
    ],
)
def test_an_option_that_cannot_be_used_is_2_and_named(
    arguments: list[str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert main([*HERE, *arguments]) == 2
    assert words in caplog.messages[-1]
    assert "Errno" not in caplog.text


WINDOWS = """
import platform, sys
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pwd", "resource", "termios"]))
platform.system = lambda: "Windows"
from farhand_worker.__main__ import main
sys.exit(main(["--url", "http://127.0.0.1:1"]))
"""


def test_a_system_that_it_does_not_run_on_is_2_and_named() -> None:
    """B155: rather than a module that is missing there, or a signal."""
    ended = subprocess.run([sys.executable, "-c", WINDOWS], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.endswith("farhand-worker runs on Linux and macOS; on Windows, run it in WSL\n")


@pytest.mark.parametrize("text", ["", "two words", "two\nlines", "tökén"])
def test_a_file_that_holds_no_token_is_refused(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text(text)
    assert main([*HERE, "--token-file", str(tmp_path / "token")]) == 2
    assert "token" in caplog.messages[-1]
    assert text == "" or text not in caplog.text


def test_a_state_directory_that_cannot_be_written_is_2(
    tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FARHAND_WORKER_TOKEN", "some.token")
    (tmp_path / "file").write_text("")
    assert main([*HERE, "--state-dir", str(tmp_path / "file" / "state")]) == 2
    assert "cannot be written (Not a directory); choose another --state-dir" in caplog.messages[-1]


def test_without_an_address_it_is_2(caplog: pytest.LogCaptureFixture) -> None:
    assert main([]) == 2
    assert "the server's address is needed: --url" in caplog.messages[-1]


def test_more_slots_than_cores_is_worth_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FARHAND_WORKER_PARALLEL", "9999")
    assert main([*HERE, "--token-file", str(tmp_path / "none")]) == 2
    assert [m for m in caplog.messages if "--parallel 9999 is above the" in m] == [caplog.messages[0]]


def test_the_file_of_settings_lies_in_the_directory_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("farhand.toml").write_text("[worker]\nurl = 'http://127.0.0.1:1'\ntoken_file = 'missing'\n")
    assert main([]) == 2
    assert f"cannot be read from {tmp_path / 'missing'}" in caplog.messages[-1]
    Path("farhand.toml").write_text("[worker]\nlables = []\n")
    assert main(HERE) == 2
    assert "unknown settings under [worker]: lables" in caplog.messages[-1]


def test_an_interrupt_before_anything_runs_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("farhand_worker.__main__.options", interrupted)
    assert main(HERE) == 130
