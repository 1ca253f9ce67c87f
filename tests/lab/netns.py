"""Two hosts and a router between them, as network namespaces joined by veth pairs; made with iproute2.

Everything lies in namespaces of this process's own: no interface, address or route of the machine is touched.
A thread enters one by `inside`, and what it starts or dials from there is on that host.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.optional import need

SERVER, WORKER = "10.213.1.2", "10.213.2.2"
_GATEWAYS = {"server": "10.213.1.1", "worker": "10.213.2.1"}
_ADDRESSES = {"server": SERVER, "worker": WORKER}
_CLONE_NEWNET = 0x40000000
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


class Network:
    """The hosts ``server`` and ``worker`` and the ``router``. Raises CalledProcessError or OSError."""

    def __init__(self) -> None:
        self._prefix = f"farhand-{os.getpid()}"
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def name(self, host: str) -> str:
        """The namespace of a host."""
        return f"{self._prefix}-{host}"

    def _make(self) -> None:
        for host in ("server", "worker", "router"):
            _ip("netns", "add", self.name(host))
            self._on(host, "link", "set", "lo", "up")
        for host, address in _ADDRESSES.items():
            router, gateway = self.name("router"), _GATEWAYS[host]
            ends = ["link", "add", "up0", "netns", self.name(host), "type", "veth", "peer", "name", host]
            _ip(*ends, "netns", router)
            self._on(host, "address", "add", f"{address}/24", "dev", "up0")
            self._on(host, "link", "set", "up0", "up")
            self._on("router", "address", "add", f"{gateway}/24", "dev", host)
            self._on("router", "link", "set", host, "up")
            self._on(host, "route", "add", "default", "via", gateway)
        self.heal()

    def cut(self) -> None:
        """The router passes nothing on, and tells nobody."""
        with self.inside("router"):
            _FORWARDING.write_text("0")

    def heal(self) -> None:
        """The router passes everything on."""
        with self.inside("router"):
            _FORWARDING.write_text("1")

    def unplug(self) -> None:
        """The worker's host loses its link."""
        self._on("router", "link", "set", "worker", "down")

    def plug(self) -> None:
        """It has its link again."""
        self._on("router", "link", "set", "worker", "up")

    @contextlib.contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """What this thread dials, listens on and starts is on that host."""
        with open(f"/run/netns/{self.name(host)}") as there, open("/proc/thread-self/ns/net") as here:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())

    def processes(self) -> list[int]:
        """Whatever still runs on one of the hosts."""
        found = [_ip("netns", "pids", self.name(host)) for host in ("server", "worker", "router")]
        return [int(pid) for text in found for pid in text.split()]

    def close(self) -> None:
        """Take it away; the veth pairs go with their namespaces."""
        for host in ("server", "worker", "router"):
            if Path(f"/run/netns/{self.name(host)}").exists():
                _ip("netns", "delete", self.name(host))

    def _on(self, host: str, *arguments: str) -> None:
        _ip("-n", self.name(host), *arguments)


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)
    return done.stdout


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network that is taken away at the end; skips the test, saying why, where none can be made."""
    need("iproute2")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root: a session over a real network")
    try:
        made = Network()
    except (subprocess.CalledProcessError, OSError) as error:
        why = (getattr(error, "stderr", None) or str(error)).strip()
        pytest.skip(f"no network namespace can be made here ({why}): a session over a real network")
    try:
        yield made
    finally:
        made.close()
