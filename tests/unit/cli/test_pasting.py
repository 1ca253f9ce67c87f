"""The line of an invitation: it fetches the program from the server it names, and from no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from farhand.cli.pasting import bare_line, installed_line
from tests.unit.worker.conftest import TlsServer, tls_server

__all__ = ["tls_server"]

OTHER = "sha256:" + "0" * 64


def pasted(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """The line in a shell that has one Python."""
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "bin" / "python3").symlink_to(sys.executable)
    environment = {"PATH": f"{directory}/bin"}
    return subprocess.run(
        ["/bin/sh", "-c", line + " --more 1"], cwd=directory, env=environment, text=True, capture_output=True
    )


def test_the_code_is_sent_to_nobody_but_the_server_that_is_pinned(
    tls_server: TlsServer, tmp_path: Path
) -> None:
    told = pasted(bare_line("the-code", tls_server.address.text, OTHER), tmp_path)
    assert told.returncode == 1
    assert "this is not the server that sent the invitation" in told.stderr
    assert tls_server.asked == []


def test_the_program_is_fetched_with_the_code_and_started_with_the_same_words(
    tls_server: TlsServer, tmp_path: Path
) -> None:
    tls_server.program = b"import os, sys; print(sys.argv, os.environ['FARHAND_WORKER_INVITE'])"
    url = tls_server.address.text
    told = pasted(bare_line("the-code", url, tls_server.pin), tmp_path)
    words = ["farhand-worker.pyz", "--url", url, "--pin", tls_server.pin, "--more", "1"]
    assert told.stdout == f"{words} the-code\n", told.stderr
    assert tls_server.asked == [("/base/api/v1/workers/agent.pyz", "Invitation the-code")]


def test_a_refusal_is_said(tls_server: TlsServer, tmp_path: Path) -> None:
    tls_server.answer = (403, {"detail": "the invitation of box has been used"})
    told = pasted(bare_line("the-code", tls_server.address.text, tls_server.pin), tmp_path)
    assert (told.returncode, told.stderr) == (1, "the invitation of box has been used\n")


@pytest.mark.parametrize(
    ("url", "pin", "line"),
    [
        ("https://h/b", "", "FARHAND_WORKER_INVITE=c farhand-worker --url https://h/b"),
        ("https://h", OTHER, f"FARHAND_WORKER_INVITE=c farhand-worker --url https://h --pin {OTHER}"),
    ],
)
def test_where_the_program_is_installed_the_line_is_short(url: str, pin: str, line: str) -> None:
    assert installed_line("c", url, pin) == line
