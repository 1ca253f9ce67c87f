"""What the standard library needs is found although a project has modules of the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.receivers import Mail, Web

FLOW = """
import sys
import calendar, email, string
from farhand import flow, notify


@flow(on_failed=notify(email="me@example.org", smtp=sys.argv[1], webhook=sys.argv[2]))
def main():
    raise ValueError("it broke")


try:
    main()
except ValueError:
    import email.letters
    print(email.MINE, calendar.MINE, string.MINE, email.letters.MINE, "smtplib" in sys.modules)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that has taken names which the standard library's own modules import."""
    for name in ("calendar.py", "string.py", "email/__init__.py", "email/letters.py", "http.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("MINE = 1\n")
    (tmp_path / "main.py").write_text(FLOW)
    return tmp_path


def test_a_project_with_an_email_module_is_notified_all_the_same_and_keeps_it(project: Path) -> None:
    mail, web = Mail(), Web()
    try:
        done = subprocess.run(
            [sys.executable, "main.py", mail.address, web.url],
            cwd=project,
            env={**os.environ, "FARHAND_HOME": str(project / "home")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        mail.close()
        web.close()
    assert done.stdout.split() == ["1", "1", "1", "1", "True"], done.stderr
    assert "a hook of main failed" not in done.stderr
    assert (len(mail.letters), len(web.got)) == (1, 1)
