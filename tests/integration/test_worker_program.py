"""The worker program from outside: what it says, what it shows nobody, and when it leaves by itself."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from farhand_worker.state import carriers
from tests.docs.pages import page
from tests.integration.agent_server import TOKEN, AgentProcess, FakeServer, until

pytestmark = pytest.mark.anyio


def everything_shown(kind: str) -> dict[int, bytes]:
    """Every process's command line or first environment, as other processes can read it."""
    shown: dict[int, bytes] = {}
    for path in Path("/proc").glob(f"[0-9]*/{kind}"):
        try:
            shown[int(path.parent.name)] = path.read_bytes()
        except OSError:
            continue  # gone meanwhile
    return shown


@pytest.mark.fault("3.50")
@pytest.mark.parametrize("way", ["argument", "variable"])
async def test_a_token_is_in_no_command_line_environment_or_log(
    server: FakeServer, tmp_path: Path, way: str
) -> None:
    given = ["--token", TOKEN] if way == "argument" else []
    environ = {"FARHAND_WORKER_TOKEN": TOKEN} if way == "variable" else {}
    environ |= {"A_SERVICE_TOKEN": "kept-back", "HF_TOKEN": "passed-on", "TOKENIZERS_PARALLELISM": "false"}
    agent = AgentProcess(server, tmp_path / "state", *given, "--pass-env", "HF_TOKEN", token_file=False)
    agent.start(**environ)
    try:
        await server.attached()
        await server.assign("j", "import os; log(repr(sorted(os.environ.items())))\nvalue = outcomes.get()")
        await until(lambda: server.record("j").texts(), "the engine says its environment")
        for kind in ("cmdline", "environ"):
            assert [pid for pid, text in everything_shown(kind).items() if TOKEN.encode() in text] == []
        seen = server.record("j").texts()[0]
        assert ("passed-on" in seen, "kept-back" in seen, "TOKENIZERS_PARALLELISM" in seen) == (
            True,
            False,
            True,
        )
        assert TOKEN not in agent.log + seen
        assert agent.log.count("kept from user code, as they look like credentials: A_SERVICE_TOKEN") == 1
        assert "kept-back" not in agent.log
    finally:
        agent.close()


async def test_it_leaves_when_there_was_nothing_to_do_for_a_while(server: FakeServer, tmp_path: Path) -> None:
    agent = AgentProcess(server, tmp_path / "state", "--max-idle", "0.5").start()
    try:
        assert await agent.exit_code(20) == 0
        assert "nothing to do for 0.5 s; stopping" in agent.log
        assert [bye.reason for bye in server.byes] in ([], ["nothing to do for 0.5 s; stopping"])
    finally:
        agent.close()


async def test_it_says_what_it_has_and_offers(server: FakeServer, tmp_path: Path) -> None:
    told = ["--cpus", "3", "--gpus", "2", "--ram-mb", "2G", "--labels", "gpu,zone=eu"]
    told += ["--shared-path", "/srv/data", "--service-host", "mill.example"]
    agent = AgentProcess(server, tmp_path / "state", *told).start(CUDA_VISIBLE_DEVICES="GPU-a,GPU-b,GPU-c")
    try:
        await server.attached()
        hello = server.hellos[0]
        assert hello.inventory == {"cpus": 3, "gpus": 2, "ram_mb": 2048, "devices": ["GPU-a", "GPU-b"]}
        assert (hello.labels, hello.shared_paths) == (["gpu", "zone=eu"], ["/srv/data"])
        assert hello.service_host == "mill.example"
    finally:
        agent.close()


async def test_it_says_that_it_runs_cancels_and_dials_again(server: FakeServer, tmp_path: Path) -> None:
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        await server.attached()
        await server.assign("j", "value = outcomes.get()")
        await until(lambda: server.record("j").events["engine"], "it started")
        await server.cancel("j")
        await server.ended("j")
        server.cut()
        await server.attached(2)
        lines = agent.log.splitlines()
        said = [line.split(" ", 2)[2] for line in lines]
        assert f"INFO attached to {server.url} as a-worker with labels demo" in said
        assert "INFO run j (flow, lease 1)" in said
        assert any(line.startswith("INFO cancel j (") for line in said)
        assert any(line.startswith("WARNING disconnected: ") and "; retrying in " in line for line in said)
    finally:
        agent.close()


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_an_odd_answer_after_the_first_session_is_a_proxy_and_waited_out(
    server: FakeServer, tmp_path: Path, status: int
) -> None:
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        await server.attached()
        await until(lambda: "attached to" in agent.log, "it knows that it is attached")
        server.status = status
        server.cut()
        await until(lambda: agent.log.count(f"the server answered {status}") >= 2, "it keeps trying")
        server.status = None
        await server.attached(2)
    finally:
        agent.close()


async def test_an_address_that_leads_elsewhere_is_refused(server: FakeServer, tmp_path: Path) -> None:
    server.status = 301
    agent = AgentProcess(server, tmp_path / "state").start()
    assert await agent.exit_code() == 3
    assert "is not where the server is; it leads to elsewhere: give that as --url" in agent.log


@pytest.mark.parametrize("greeting", [b"HTTP/1.0 404 File not found\r\n\r\n", b"SSH-2.0-Server\r\n"])
async def test_what_speaks_another_protocol_is_no_server_of_this_kind(
    server: FakeServer, tmp_path: Path, greeting: bytes
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        await reader.read()
        writer.close()

    other = await asyncio.start_server(greet, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
    agent = AgentProcess(server, tmp_path / "state", "--url", url).start()
    try:
        assert await agent.exit_code() == 3
        assert f"refused: {url} is not a farhand server (its answer is not HTTP/1.1)" in agent.log
    finally:
        agent.close()
        other.close()


async def test_a_server_without_tls_is_told_from_one_that_is_not_trusted(
    server: FakeServer, tmp_path: Path
) -> None:
    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(complain, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{other.sockets[0].getsockname()[1]}"
    agent = AgentProcess(server, tmp_path / "state", "--url", url).start()
    try:
        await until(lambda: "not connected: what answers there does not speak TLS" in agent.log, "it says so")
    finally:
        agent.close()
        other.close()


async def test_a_server_that_closes_before_it_answers_is_dialled_again(
    server: FakeServer, tmp_path: Path
) -> None:
    """As one does that ends, or a proxy whose server is away: that is no other server."""

    def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    other = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
    agent = AgentProcess(server, tmp_path / "state", "--url", url).start()
    try:
        said = "not connected: the connection was closed before an answer came"
        await until(lambda: agent.log.count(said) >= 2, "it keeps trying")
    finally:
        agent.close()
        other.close()


async def fetched(url: str, host: str | None = None) -> tuple[int, str]:
    """GET by hand, so that nothing between hides what was sent."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"GET {parts.path} HTTP/1.1\r\nHost: {host or parts.netloc}\r\n\r\n".encode())
    response = (await reader.read()).decode()
    writer.close()
    return int(response.split(" ")[1]), response.split("\r\n\r\n", 1)[1]


async def said_of_health(url: str) -> tuple[int, int]:
    """The exit codes of the commands of the page on systemd, as they are written there but for the port."""
    commands = re.findall(r"^    (curl .*?)(?: +#.*)?$", page("howto-systemd.md"), re.MULTILINE)
    health, status = (line.replace("http://127.0.0.1:8421/", url) for line in commands)
    codes: list[int] = []
    for command in (health, status):
        done = await asyncio.create_subprocess_exec(*shlex.split(command), stdout=asyncio.subprocess.DEVNULL)
        codes.append(await done.wait())
    return codes[0], codes[1]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_commands_of_the_page_on_systemd_tell_its_health(
    server: FakeServer, tmp_path: Path
) -> None:
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        await server.attached()
        url = server.hellos[0].status_url
        assert url is not None
        assert await said_of_health(url) == (0, 0)
        await server.stop_listening()
        deadline = asyncio.get_running_loop().time() + 10
        while await said_of_health(url) != (22, 0):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
    finally:
        agent.close()


async def test_it_shows_itself_also_while_the_server_is_away(server: FakeServer, tmp_path: Path) -> None:
    agent = AgentProcess(server, tmp_path / "state").start()
    try:
        await server.attached()
        url = server.hellos[0].status_url
        assert url is not None
        assert f"status page at {url}" in agent.log
        await server.assign("j", "raise ValueError('no good')")
        await server.ended("j")
        await server.assign("k", "value = outcomes.get()")
        await until(lambda: server.record("k").events["engine"], "it started")
        status = json.loads((await fetched(url + "status.json"))[1])
        assert (status["attached"], status["healthy"], status["server"]) == (True, True, server.url)
        assert (status["total"]["failed"], status["flows"][0]["last"]) == (1, "failed")
        assert "no good" in status["flows"][0]["message"]
        assert [job["job"] for job in status["running"]] == ["k"]
        assert status["trouble"] == ""
        assert (await fetched(url + "healthz"))[0] == 200
        assert (await fetched(url, "evil.example"))[0] == 403

        await server.stop_listening()
        await until(lambda: "; retrying in " in agent.log, "it notices")
        deadline = asyncio.get_running_loop().time() + 10
        while (await fetched(url + "healthz"))[0] != 503:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
        code, text = await fetched(url)
        assert code == 200
        assert "The server has been away for " in text
        assert "1 job still running" in text
        assert TOKEN not in text
    finally:
        agent.close()


async def test_a_port_that_is_taken_is_2_and_named(server: FakeServer, tmp_path: Path) -> None:
    agent = AgentProcess(server, tmp_path / "state", "--status-port", str(server.port)).start()
    assert await agent.exit_code() == 2
    assert f"the status page cannot listen at 127.0.0.1:{server.port}" in agent.log
    assert "give --status-port" in agent.log
    assert carriers((agent.state / "identity").read_text().strip()) == set(), "what was launched has ended"
