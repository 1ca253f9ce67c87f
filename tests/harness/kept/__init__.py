"""A project with one flow and the services that a test writes down, and what a test does with them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx2

from tests.harness.deployment import Deployment, free_port
from tests.harness.waiting import eventually

PROGRAMS = [Path(__file__).with_name(name) for name in ("server.py", "pages.py")]

_FLOW = """
import urllib.request

from farhand import Service, flow, service_url, task

services = [{services}]


@task
def read(name, path="/", timeout=20):
    url = service_url(name, timeout=timeout)
    with urllib.request.urlopen(url + path, timeout=10) as answer:
        return [url, answer.read().decode()]


@flow(services=services)
def use(name: str, timeout: float = 20) -> list:
    return read(name, timeout=timeout)
"""


class Kept:
    """Services by name. ``ports`` are theirs, ``flags`` the files that switch one to what it was told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.project = directory / "kept"
        self.project.mkdir(parents=True)
        for program in PROGRAMS:
            shutil.copy(program, self.project)
        self.ports: dict[str, int] = {}
        self.deployment: Deployment | None = None
        self._described: list[str] = []

    def flag(self, name: str) -> Path:
        """The file that switches a service over."""
        return self.directory / f"{name}.flag"

    def add(self, name: str, what: str = "", program: str = "server.py", **options: Any) -> int:
        """Write a service down; returns its port."""
        port = self.ports[name] = free_port()
        command = ["python", f"{{code}}/{program}", "{port}", what, str(self.flag(name))]
        known = {"port": port, "health_timeout": 0.5, "command": command, **options}
        told = ", ".join(f"{key}={value!r}" for key, value in known.items())
        self._described.append(f"Service({name!r}, {told})")
        self.write()
        return port

    def write(self, described: list[str] | None = None) -> None:
        """Write the project."""
        listed = ", ".join(self._described if described is None else described)
        (self.project / "using.py").write_text(_FLOW.replace("{services}", listed))

    def show(self, name: str) -> dict[str, Any]:
        """The service as the API shows it."""
        assert self.deployment is not None
        return self.deployment.get(f"/services/{name}")

    def becomes(self, name: str, state: str, reason: str = "", within_s: float = 30) -> dict[str, Any]:
        """The service, once it is so."""

        def look() -> dict[str, Any] | None:
            found = self.show(name)
            seen.append(f"{found['state']} {found['reason']} {found['message']}")
            return found if found["state"] == state and (not reason or found["reason"] == reason) else None

        seen: list[str] = []
        return eventually(look, within_s, lambda: f"{name} is {state} {reason}: {seen[-3:]}")

    def pid(self, name: str, but: int = 0) -> int:
        """The process that answers where the service is said to be, once that is another than ``but``."""

        def look() -> int:
            url = self.show(name)["url"]
            try:
                pid = int(httpx2.get(f"{url}/", timeout=5).text.split()[0]) if url else 0
            except httpx2.TransportError:  # it has just ended
                return 0
            return 0 if pid == but else pid

        return eventually(look, 30, f"{name} answers")

    def listens(self, name: str) -> bool:
        """Whether anybody has its port."""
        try:
            httpx2.get(f"http://127.0.0.1:{self.ports[name]}/", timeout=2)
        except httpx2.ConnectError:
            return False
        return True

    def lines(self, name: str) -> list[str]:
        """What it wrote."""
        assert self.deployment is not None
        return [line["text"] for line in self.deployment.items(f"/services/{name}/logs")]
