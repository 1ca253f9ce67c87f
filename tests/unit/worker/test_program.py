"""The program itself: what it refuses before it dials, in one line and with an exit code."""

from __future__ import annotations

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
        ([], "a token is needed: --token-file"),
        (["--token-file", "nowhere.token"], "cannot be read from nowhere.token: No such file or directory"),
        (["--token-fd", "250"], "cannot be read from descriptor 250"),
        (["--python", "/no/python"], "--python /no/python is no Python that runs here: No such file"),
    ],
)
def test_an_option_that_cannot_be_used_is_2_and_named(
    arguments: list[str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert main([*HERE, *arguments]) == 2
    assert words in caplog.messages[-1]
    assert "Errno" not in caplog.text


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


def test_an_interrupt_before_anything_runs_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("farhand_worker.__main__._token", interrupted)
    assert main(HERE) == 130
