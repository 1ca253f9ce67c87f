"""A server for agents under test: the real protocol over a real socket, and levers for what can go wrong."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from farhand.sdk import stem
from farhand_worker.protocol import (
    FINAL,
    Accepted,
    Ack,
    Assign,
    Bye,
    Cancel,
    Changed,
    Drained,
    Event,
    Fenced,
    Heartbeat,
    Hello,
    Outcome,
    Refused,
    Reply,
    Request,
    Resume,
    Times,
    Welcome,
    as_dict,
    decode,
    encode,
)
from tests.harness.processes import is_stem

STUBBORN = """
import subprocess, sys, time
inner = "import os, signal, time; os.setsid(); signal.signal(15, signal.SIG_IGN); "
inner += "print('stubborn', os.getpid(), flush=True); time.sleep(600)"
outer = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', %r])" % inner
subprocess.run([sys.executable, '-c', outer])
log('begun')
"""
"""Leaves a grandchild that has called setsid, ignores SIGTERM and says its process id."""

SLEEP = "time.sleep(600)\n"

TENTH = Times().scaled(0.1)
PATIENT = replace(TENTH, margin_s=3.0)
"""For tests of links: a warden that has to wait for a processor is not taken for a stopped one."""

STEADY = replace(TENTH, lease_s=15.0, margin_s=3.0)
"""For tests in which nothing is lost: a machine that stalls for a second ends none of their engines."""

_TURNS = 3
"""Of the loop, until a connection that was taken has whoever serves it."""

TOKEN = f"a-token-of-a-worker-{os.getpid()}"
"""Of this process alone: a test looks for it in all that runs on the machine."""
ENGINE = Path(__file__).with_name("agent_engine.py")
STEM = Path(str(stem.__file__))


async def until(condition: Callable[[], Any], what: str, timeout_s: float = 10.0) -> Any:
    """Wait for something that a real process does; the value that ``condition`` then has."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(0.005)
    return value


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@dataclass
class Record:
    """What has been recorded of one (job, lease)."""

    events: dict[str, list[list[Any]]] = field(default_factory=lambda: {"engine": [], "agent": []})
    final: list[Any] | None = None
    accepted: int = 0

    def texts(self, source: str = "engine") -> list[str]:
        return [event[1]["text"] for event in self.events[source] if event[0] == "log"]


class FakeServer:
    """One port for websocket and HTTP. Everything that arrived is in ``records``, ``hellos``, ``story``."""

    def __init__(self, times: Times = TENTH) -> None:
        self.times = times
        self.records: dict[tuple[str, int], Record] = {}
        self.hellos: list[Hello] = []
        self.byes: list[Bye] = []
        self.drained: list[Drained] = []
        self.requests: list[Request] = []
        self.beats: list[float] = []
        self.story: list[str] = []
        self.fenced: set[tuple[str, int]] = set()
        self.refusal: Refused | None = None
        self.status: int | None = None
        self.attends = True
        self.tells_digest = True
        self.gets: list[str] = []
        self.gives = asyncio.Event()
        self.gives.set()
        self.welcomes = asyncio.Event()
        self.welcomes.set()
        self.answers_beats = True
        self.acknowledges = True
        self.cancelling: set[str] = set()
        self.runtime = self.runtime_of()
        self.bundle = zipped({"flows.py": b"VALUE = 1\n"})
        self.blobs = {digest_of(self.bundle): self.bundle}
        self.port = 0
        self._ws: Server | None = None
        self._front: asyncio.Server | None = None
        self._session: ServerConnection | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.troubles: list[str | None] = []
        self._handlers: dict[type, Callable[[Any], Awaitable[None]]] = {
            Heartbeat: self._on_heartbeat,
            Accepted: self._on_accepted,
            Event: self._on_event,
            Request: self._on_request,
            Drained: self._on_drained,
            Changed: self._on_changed,
            Bye: self._on_bye,
        }

    def runtime_of(self, more: bytes = b"") -> bytes:
        return zipped(
            {"farhand/sdk/engine.py": ENGINE.read_bytes() + more, "farhand/sdk/stem.py": STEM.read_bytes()}
        )

    async def start(self) -> FakeServer:
        if self._ws is None:
            self._ws = await serve(self._serve, "127.0.0.1", 0, ping_interval=None, compression=None)
        self._front = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._front.sockets[0].getsockname()[1]
        return self

    async def stop_listening(self) -> None:
        """As if the process were gone: connections are reset, new ones refused."""
        assert self._front is not None
        self._front.close()
        self.cut()

    async def close(self) -> None:
        await self.stop_listening()
        for held_up in (self._open, self.gives, self.welcomes):
            held_up.set()
        for _ in range(_TURNS):  # a connection that was taken just before is nobody's yet
            await asyncio.sleep(0)
        self.cut()
        # Each may have one to the websocket's port under way, which that has yet to take.
        await until(lambda: not self._writers, "every connection is let go of")
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        assert self._ws is not None
        self._ws.close()
        await self._ws.wait_closed()

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def stall(self) -> None:
        """Pass no byte on any more, in either direction."""
        self._open.clear()

    def go_on(self) -> None:
        """Pass on what `stall` has held up."""
        self._open.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # ------------------------------------------------------------ what a test orders

    def record(self, job: str, lease: int = 1) -> Record:
        return self.records.setdefault((job, lease), Record())

    async def attached(self, count: int = 1) -> None:
        await until(lambda: self._session is not None and len(self.hellos) >= count, f"hello {count}")

    async def send(self, message: Any) -> None:
        await until(lambda: self._session is not None, "a session")
        assert self._session is not None
        await self._session.send(encode(message))

    async def assign(self, job: str, code: str = "", lease: int = 1, **fields: Any) -> None:
        usual = {
            "attempt": 1,
            "kind": "run",
            "run": "run-" + job,
            "flow": "flow",
            "entry": "flows:flow",
            "args": {"enc": "json", "text": "{}"},
            "bundle": digest_of(self.bundle),
        }
        settings = {"code": code, **fields.pop("settings", {})}
        await self.send(Assign(job=job, lease=lease, settings=settings, **{**usual, **fields}))

    async def cancel(self, job: str, lease: int = 1) -> None:
        await self.send(Cancel(job, lease))

    async def fence(self, job: str, lease: int = 1) -> None:
        self.fenced.add((job, lease))
        await self.send(Fenced(job, lease, "given to another"))

    async def outcome(self, job: str, key: str, body: dict[str, Any], lease: int = 1) -> None:
        await self.send(Outcome(job, lease, key, body))

    async def ended(self, job: str, lease: int = 1, timeout_s: float = 10.0) -> list[Any]:
        record = self.record(job, lease)
        return await until(lambda: record.final, f"the end of {job}", timeout_s)

    async def line(self, job: str, text: str, lease: int = 1, source: str = "engine") -> None:
        record = self.record(job, lease)
        await until(lambda: text in record.texts(source), f"the line {text!r} of {job}")

    # ------------------------------------------------------------ HTTP, and bytes for the websocket

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"upgrade: websocket" in head.lower() and self.status is None:
                if self.attends:
                    await self._pass_on(head, reader, writer)
            else:
                await self._http(head, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._ws is not None
        port = next(iter(self._ws.sockets)).getsockname()[1]
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        inner_writer.write(head)
        there = asyncio.ensure_future(self._pump(reader, inner_writer))
        back = asyncio.ensure_future(self._pump(inner_reader, writer))
        try:
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            inner_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            await self._open.wait()
            writer.write(chunk)
            await writer.drain()

    async def _http(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.decode().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        status, content, told = self.status or 200, b"", ""
        if headers.get("authorization") != f"Bearer {TOKEN}":
            status = 401
        elif self.status is None:
            status, content = self._answer(method, path, headers, body)
        if status == 200 and headers.get("range") == "bytes=0-0" and self.tells_digest:
            status, content, told = 206, content[:1], f"Farhand-Digest: {digest_of(content)}\r\n"
        elif method == "GET":
            self.gets.append(path)
            await self.gives.wait()
        writer.write(f"HTTP/1.1 {status} X\r\n{told}Content-Length: {len(content)}\r\n\r\n".encode())
        writer.write(b"" if method == "HEAD" else content)
        await writer.drain()

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if path == "/api/v1/workers/runtime":
            return 200, self.runtime
        digest = path.removeprefix("/api/v1/artifacts/")
        if method == "PUT":
            assert digest == digest_of(body)
            self.story.append(f"put {digest} for {headers['farhand-job']}-{headers['farhand-lease']}")
            self.blobs[digest] = body
            return 201, b""
        return (200, self.blobs[digest]) if digest in self.blobs else (404, b"")

    # ------------------------------------------------------------ the session

    async def _serve(self, session: ServerConnection) -> None:
        try:
            hello = decode(str(await session.recv()))
            self.hellos.append(hello)
            if self.refusal is not None:
                await session.send(encode(self.refusal))
                return
            await self.welcomes.wait()
            await session.send(encode(self._welcome(hello)))
            self._session = session
            async for text in session:
                message = decode(str(text))
                await self._handlers[type(message)](message)
        except ConnectionClosed:
            pass
        finally:
            if self._session is session:
                self._session = None

    async def _on_changed(self, changed: Changed) -> None:
        self.troubles.append(changed.trouble)

    def _welcome(self, hello: Hello) -> Welcome:
        resume = []
        for held in hello.held:
            key = (held["job"], held["lease"])
            recorded = {source: len(events) for source, events in self.record(*key).events.items()}
            resume.append(as_dict(Resume(*key, recorded, key in self.fenced, held["job"] in self.cancelling)))
        return Welcome(
            "a-worker", 1, "inc", as_dict(self.times), digest_of(self.runtime), "key", resume, ["demo"]
        )

    async def _answer_with(self, message: Any) -> None:
        if self._session is not None:
            await self._session.send(encode(message))

    async def _on_heartbeat(self, message: Heartbeat) -> None:
        self.beats.append(time.monotonic())
        if self.answers_beats:
            await self._answer_with(Ack(message.n))

    async def _on_accepted(self, message: Accepted) -> None:
        self.record(message.job, message.lease).accepted += 1

    async def _on_event(self, message: Event) -> None:
        key = (message.job, message.lease)
        record = self.record(*key)
        known = record.events[message.source]
        record.accepted = record.accepted or 1
        assert message.first <= len(known) + 1, f"a gap before {message.first} after {len(known)}"
        fresh = message.events[len(known) + 1 - message.first :]
        if fresh and key in self.fenced:
            await self._answer_with(Fenced(*key, "not current"))
            return
        for event in fresh:
            assert record.final is None, f"{event} after the end"
            assert not [d for d in (event[2] if len(event) > 2 else []) if d not in self.blobs]
            known.append(event)
            self.story.append(f"{message.source} {event[0]} of {message.job}-{message.lease}")
            if event[0] in FINAL:
                record.final = event
        if self.acknowledges:
            await self._answer_with(Ack(None, message.job, message.lease, message.source, len(known)))

    async def _on_request(self, message: Request) -> None:
        self.requests.append(message)
        await self._answer_with(Reply(message.id, message.job, message.lease, {"items": [], "more": False}))

    async def _on_drained(self, message: Drained) -> None:
        self.drained.append(message)

    async def _on_bye(self, message: Bye) -> None:
        self.byes.append(message)
        if self._session is not None:
            await self._session.close()


async def stubborn(server: FakeServer, job: str) -> tuple[int, int]:
    """The engine of a job that runs `STUBBORN`, and the grandchild."""
    record = server.record(job)

    def said() -> list[str]:
        assert record.final is None, record
        return [text for text in record.texts("agent") if text.startswith("stubborn")]

    text = await until(said, "the child")
    await server.line(job, "begun")
    return record.events["engine"][0][1]["pid"], int(text[0].split()[1])


class AgentProcess:
    """A real agent in a real process, and what can be done to it."""

    def __init__(
        self,
        server: FakeServer,
        state: Path,
        *options: str,
        python: str = sys.executable,
        token_file: bool = True,
    ) -> None:
        self._token_file = token_file
        self.state = state
        self.server = server
        self._options = options
        self._python = python
        self.log_path = state.with_name(state.name + ".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **environ: str) -> AgentProcess:
        token = self.state.with_name("token")
        token.write_text(TOKEN)
        command = [self._python, "-m", "farhand_worker"]
        command += ["--token-file", str(token)] if self._token_file else []
        if "--url" not in self._options and "--url-file" not in self._options:
            command += ["--url", self.server.url]
        command += ["--state-dir", str(self.state), "--parallel", "4", *self._options]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, env={**os.environ, **environ})
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    @property
    def warden(self) -> int:
        """The warden's process id, or 0 when there is none."""
        return next((pid for pid in children(self.pid) if b"warden.py" in command_of(pid)), 0)

    @property
    def stem(self) -> int:
        """The process id of the stem that takes orders, or 0 when there is none."""
        return next((pid for pid in children(self.warden) if is_stem(pid)), 0)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)  # not to a later process of its id

    async def exit_code(self, timeout_s: float = 10.0) -> int:
        assert self.process is not None
        process = self.process
        await until(lambda: process.poll() is not None, "the agent's end", timeout_s)
        return process.returncode

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        print(self.log)


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
