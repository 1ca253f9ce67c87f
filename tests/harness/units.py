"""Units of systemd: read by the rules of its manual, and shown to systemd itself where it is installed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

Unit = dict[str, dict[str, str]]

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')


def read_unit(text: str) -> Unit:
    """Sections and keys (systemd.syntax): comments go, and a line that ends in a backslash goes on."""
    unit: Unit = {}
    section: dict[str, str] = {}
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        if line.startswith("["):
            assert line.endswith("]"), line
            section = unit.setdefault(line[1:-1], {})
            continue
        key, sign, value = line.partition("=")
        assert sign, f"{line!r} is neither a section nor a key"
        assert re.fullmatch("[A-Z][A-Za-z]+", key), line
        section[key] = value.strip()
    return unit


def started(command: str) -> list[str]:
    """The words of an ExecStart= as the program gets them (systemd.service, "Command lines").

    Only the words after the first have variables, so there alone a dollar is written twice.
    """
    words = [
        re.sub(r"\\(.)", r"\1", match[1]) if match[2] is None else match[2]
        for match in _WORD.finditer(command)
    ]
    for word in words:
        assert "%" not in word.replace("%%", ""), f"{word!r} has a specifier"
    for word in words[1:]:
        assert "$" not in word.replace("$$", ""), f"{word!r} has a variable"
    words = [word.replace("%%", "%") for word in words]
    return words[:1] + [word.replace("$$", "$") for word in words[1:]]


def verified(unit: Path, runtime: Path) -> subprocess.CompletedProcess[str]:
    """What ``systemd-analyze --user verify`` says of a unit; ``runtime`` is a directory it may use."""
    return subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        timeout=60,
    )
