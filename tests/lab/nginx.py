"""A real nginx with the block of docs/proxy.md, on a free loopback port, and a certificate for it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.harness.certificates import self_signed
from tests.harness.deployment import Deployment, free_port
from tests.harness.waiting import eventually
from tests.optional import need

PAGE = Path(__file__).parents[2] / "docs" / "proxy.md"
NAME = "localhost"
SERVICES = "apps.example.test"
"""The domain below which services have hosts of their own, in the second block that the page speaks of."""

_AROUND = """
{user}
pid {directory}/nginx.pid;
error_log {directory}/error.log;
worker_processes 1;
events {{}}
http {{
    access_log {directory}/access.log;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
{block}
}}
"""


def documented_block() -> str:
    """The block as the page shows it."""
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None, f"{PAGE} shows no nginx block"
    return found[1]


def _for_services(block: str) -> str:
    """The second block: another name, and the same lines for all of the path."""
    second = block[block.index("server {") :]
    second = second.replace(f"server_name {NAME}", f"server_name *.{SERVICES}")
    return second.replace("location /farhand/ {", "location / {")


class Nginx:
    """nginx before the server that listens on ``upstream``."""

    def __init__(self, directory: Path, upstream: int, port: int) -> None:
        self.directory = directory
        self.port = port
        self.url = f"https://{NAME}:{port}/farhand"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()
        self.certificate, key, _ = self_signed(directory, NAME)
        block = documented_block()
        for documented, here in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("server_name flows.example.org", f"server_name {NAME}"),
            ("/etc/ssl/flows.example.org.pem", str(self.certificate)),
            ("/etc/ssl/private/flows.example.org.key", str(key)),
            ("127.0.0.1:8420", f"127.0.0.1:{upstream}"),
        ):
            assert block.count(documented) == 1, f"the documented block has no {documented!r}"
            block = block.replace(documented, here)
        block += _for_services(block)
        user = "user root;" if os.getuid() == 0 else ""
        (directory / "nginx.conf").write_text(_AROUND.format(user=user, directory=directory, block=block))

    def start(self) -> None:
        """Start it, and wait until it listens."""
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
        command = [program, "-p", str(self.directory), "-c", str(self.directory / "nginx.conf")]
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "-e", str(self.directory / "error.log"), "-g", "daemon off;"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        eventually(self._listens, what="nginx listens")

    def stop(self) -> None:
        """End it: SIGTERM closes every connection at once."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "error.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextlib.contextmanager
def behind_nginx(deployment: Deployment, name: str = NAME) -> Iterator[Nginx]:
    """Start a server as docs/proxy.md does, and the nginx of that page before it; both end with this.

    ``name`` is what the server is told to be called.
    """
    need("nginx")
    nginx = Nginx(deployment.directory / "nginx", deployment.port, free_port())
    options = ["--base-path", "/farhand", "--public-host", name, "--trusted-proxy", "127.0.0.1"]
    deployment.server.arguments += options
    try:
        deployment.start()
        nginx.start()
        yield nginx
    finally:
        deployment.clear()
        nginx.stop()
