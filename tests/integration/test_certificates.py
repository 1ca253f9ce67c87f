"""A server that speaks TLS by itself: how workers come to it, and what they do when that changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.certificates import Authority
from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    return authority


@pytest.fixture
def server(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    monkeypatch.setenv("WITNESS_MARK", str(tmp_path))
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    authority.sign(certificate, key)
    server = Deployment(tmp_path)
    server.url = server.url.replace("http:", "https:")
    server.server.arguments += ["--tls-cert", str(certificate), "--tls-key", str(key)]
    try:
        yield server.start()
    finally:
        server.clear()


def invite(server: Deployment, name: str) -> str:
    """The line that another machine is to paste."""
    command = [sys.executable, "-m", "farhand", "workers", "invite", name, "--home", str(server.home)]
    done = subprocess.run(
        command, env=server.server.environment, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def test_a_pasted_line_makes_a_worker_and_a_new_certificate_is_met_as_it_is_trusted(
    server: Deployment, authority: Authority, tmp_path: Path
) -> None:
    there = tmp_path / "another machine"
    there.mkdir()
    (there / "python3").symlink_to(sys.executable)
    bare = {"PATH": f"{there}:/usr/bin:/bin", "HOME": str(there), "WITNESS_MARK": str(tmp_path)}
    with (there / "log").open("wb") as log:
        line = f"exec env {invite(server, 'pinned')} --parallel 3 --state-dir state"
        pinned = subprocess.Popen(["/bin/sh", "-c", line], cwd=there, env=bare, stdout=log, stderr=log)
    try:
        server.wait_for_worker("pinned", "online")
        assert server.get("/workers/pinned")["parallel"] == 3
        trusting = server.worker("trusting")

        server.server.kill()
        authority.sign(tmp_path / "server.pem", tmp_path / "server.key")
        server.restart()
        server.wait_for_worker("trusting", "online")
        eventually(lambda: trusting.text().count("attached to") == 2, what="no restart was needed")
        said = lambda: (there / "log").read_text()  # noqa: E731
        eventually(lambda: "is not the pinned one: it is sha256:" in said(), what="it says what it met")
        assert "start the worker with that as --pin" in said()
        assert server.worker_state("pinned") != "online"
    finally:
        pinned.terminate()
        pinned.wait(20)
