"""The components a test may need beyond Python, and what is skipped where one is absent.

``python -m tests.optional`` prints one line for each that is absent. With ``FARHAND_CI=1`` a component
that CI installs must be there: its absence fails the test instead of skipping it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Component:
    """A program by the names it goes by, and what is skipped without it."""

    name: str
    commands: tuple[str, ...]
    skipped: str
    installed_in_ci: bool = False
    package: str = ""

    def find(self) -> Path | None:
        """Where it is, or None; also where its Python package is not installed."""
        if self.package and find_spec(self.package) is None:
            return None
        for command in self.commands:
            if path := shutil.which(command) or _beside_the_path(command):
                return Path(path)
        return None


def _beside_the_path(command: str) -> Path | None:
    """Debian keeps PostgreSQL's programs by version, and nginx with the administrator's, off the path."""
    found = sorted([*Path("/usr/lib/postgresql").glob(f"*/bin/{command}"), *Path("/usr/sbin").glob(command)])
    return found[-1] if found else None


COMPONENTS = {
    component.name: component
    for component in (
        Component(
            "Chromium",
            ("chromium", "chromium-browser", "google-chrome"),
            "the console in a real browser",
            installed_in_ci=True,
        ),
        Component("Slurm", ("slurmctld",), "provisioning by a real Slurm", installed_in_ci=True),
        Component("slurmdbd", ("slurmdbd",), "what Slurm's accounting says", installed_in_ci=True),
        Component("MariaDB", ("mariadbd",), "what Slurm's accounting says", installed_in_ci=True),
        Component("OpenSSH", ("sshd",), "a login node behind a real ssh", installed_in_ci=True),
        Component(
            "PostgreSQL", ("initdb",), "the store on PostgreSQL", installed_in_ci=True, package="psycopg"
        ),
        Component("nginx", ("nginx",), "a session through a real proxy", installed_in_ci=True),
        Component(
            "systemd", ("/usr/lib/systemd/systemd",), "a worker as a service of systemd", installed_in_ci=True
        ),
        Component("iproute2", ("ip",), "a session over a real network", installed_in_ci=True),
    )
}


def need(name: str) -> Path:
    """The component's program; skips the test where it is absent, or fails it in CI."""
    component = COMPONENTS[name]
    if path := component.find():
        return path
    if component.installed_in_ci and os.environ.get("FARHAND_CI") == "1":
        pytest.fail(f"{name} is absent, and CI may skip nothing that it installs")
    pytest.skip(f"{name} is absent: {component.skipped}")


def absent() -> list[str]:
    """One line for each component that is not here."""
    return [f"{c.name} is absent; skipped: {c.skipped}" for c in COMPONENTS.values() if c.find() is None]


if __name__ == "__main__":
    print(*absent(), sep="\n", end="\n" if absent() else "")
