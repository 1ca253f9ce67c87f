"""A relay held by a real process, with an ssh that runs what it is told here."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from farhand.provision import carrier as carrier_module
from farhand.provision.carrier import Carrier, Home
from farhand.provision.certificate import ensure
from farhand.provision.config import Profile, Settings
from farhand_worker.address import parse
from farhand_worker.multiplex import Broken
from farhand_worker.trust import NotPinned, Trust
from tests.harness.schedulers import Scheduler

pytestmark = pytest.mark.anyio
SETTINGS: dict[str, Any] = {
    "type": "slurm", "name": "hpc", "profiles": (Profile("gpu"),), "login": "me@login", "route": "ssh",
    "relay": (sys.executable, "-m", "farhand_worker"), "relay_host": "127.0.0.1",
}  # fmt: skip


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made = Scheduler(tmp_path / "bin")
    monkeypatch.setenv("PATH", made.path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return made


@asynccontextmanager
async def carried(tmp_path: Path, **fields: Any) -> AsyncIterator[tuple[Carrier, list[str], list[str]]]:
    """A carrier to a server that echoes: with what it said, and which addresses it admitted."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    said: list[str] = []
    admitted: list[str] = []
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    tls, pin = ensure(tmp_path)
    port = server.sockets[0].getsockname()[1]
    home = Home("127.0.0.1", port, "/base", "ab12", pin, tls, admitted.append)
    carrier = Carrier(Settings(**{**SETTINGS, **fields}), home, said.append, tmp_path / "port")
    carrier.start()
    try:
        yield carrier, said, admitted
    finally:
        await carrier.stop()
        server.close()


def text_of(path: str) -> str:
    """What is in a file, if it is there."""
    return Path(path).read_text() if Path(path).exists() else ""


async def until(seen: Any) -> None:
    async with asyncio.timeout(30):
        while not seen():  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.02)


async def test_what_a_worker_sends_comes_through_by_tls_from_end_to_end(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    scheduler.faults(ssh="banner")
    async with carried(tmp_path) as (carrier, _, admitted):
        await until(lambda: carrier.url_file)
        told = carrier.url_file
        assert text_of(told) == carrier.url == admitted[0]
        assert carrier.url.endswith("/base")
        address = parse(carrier.url)
        tls = await asyncio.to_thread(Trust(carrier.pin).context, address)
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        writer.write(b"x" * 300_000)
        assert await reader.readexactly(300_000) == b"x" * 300_000
        writer.close()
        with pytest.raises((NotPinned, ssl.SSLError)):
            await asyncio.to_thread(Trust("sha256:" + "0" * 64).context, address)
    assert text_of(told) == "", "the relay has ended with its connection"


async def test_a_relay_that_cannot_be_started_is_shown_and_tried_again(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    scheduler.faults(ssh="password")
    async with carried(tmp_path) as (carrier, said, _):
        await until(lambda: said)
        assert said[0] == ("the relay on me@login is away: me@login: Permission denied (publickey,password).")
        assert carrier.url_file == ""
        scheduler.faults()
        await carrier.try_now()
        assert carrier.url_file, "whoever tests a provisioner does not wait for the next try"
        assert said[-1] == ""


async def test_a_relay_that_is_started_again_listens_where_it_did(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    """Machines in a queue know it by that address, and may see no file of it."""
    async with carried(tmp_path) as (carrier, _, _):
        await until(lambda: carrier.url_file)
        first = carrier.url
    async with carried(tmp_path) as (carrier, _, _):
        await until(lambda: carrier.url_file)
        assert carrier.url == first
        assert text_of(carrier.url_file) == first, "the earlier one has not taken the file away"


async def test_a_relay_that_nobody_holds_any_more_gives_up_its_port_to_the_next(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    """B084: a login node may take hours to notice that a connection is dead."""
    words = [*SETTINGS["relay"], "relay", "--name", "hpc-ab12", "--host", "127.0.0.1"]
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    left = await asyncio.create_subprocess_exec(*words, **pipes)
    other = await asyncio.create_subprocess_exec(*words[:5], "hpc-other", **pipes)
    assert left.stdout is not None
    url = json.loads(b"{" + (await left.stdout.readuntil(b"}")).partition(b"{")[2])["url"]
    (tmp_path / "port").write_text(url.rpartition(":")[2])
    async with carried(tmp_path) as (carrier, _, _):
        await until(lambda: carrier.url_file)
        assert carrier.url == f"{url}/base"
    assert await left.wait() < 0
    assert other.returncode is None, "those of other servers stay"
    other.kill()
    await other.wait()


async def test_a_port_that_another_program_has_is_left_to_it_after_some_tries(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier_module, "_AGAIN_S", 0.01)
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "port").write_text(str(port))
        async with carried(tmp_path) as (carrier, said, _):
            await until(lambda: carrier.url_file)
            assert said[0].endswith(f"away: the relay cannot listen on port {port}: Address already in use")
            assert f":{port}/" not in carrier.url
        async with carried(tmp_path, relay_port=port) as (carrier, said, _):
            await until(lambda: len(said) > carrier_module._TAKEN_MAX + 1)
            assert carrier.url == "", "a port that was set is waited for"


async def test_the_certificate_is_made_once(tmp_path: Path) -> None:
    assert ensure(tmp_path)[1] == ensure(tmp_path)[1]
    assert (tmp_path / "relay.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("hello", [b"{}", b"[]", b"odd", b'"'])
def test_what_a_relay_says_of_itself_and_cannot_be_read_ends_its_connection_in_words(hello: bytes) -> None:
    with pytest.raises(Broken, match="what it says of itself cannot be read"):
        carrier_module._places(hello)
