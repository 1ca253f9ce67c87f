"""A real nginx with the block of docs/proxy.md, on a free loopback port, and a certificate for it."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.harness.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs" / "proxy.md"
NAME = "localhost"

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


class Nginx:
    """nginx before the server that listens on ``upstream``."""

    def __init__(self, directory: Path, upstream: int, port: int) -> None:
        self.directory = directory
        self.port = port
        self.url = f"https://{NAME}:{port}/farhand"
        self.certificate = directory / "certificate.pem"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()
        _certify(self.certificate, directory / "certificate.key")
        block = documented_block()
        for documented, here in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("server_name flows.example.org", f"server_name {NAME}"),
            ("/etc/ssl/flows.example.org.pem", str(self.certificate)),
            ("/etc/ssl/private/flows.example.org.key", str(directory / "certificate.key")),
            ("127.0.0.1:8420", f"127.0.0.1:{upstream}"),
        ):
            assert block.count(documented) == 1, f"the documented block has no {documented!r}"
            block = block.replace(documented, here)
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


def _certify(certificate: Path, key: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
