"""An agent for tests: starts a real engine process and speaks its channel from the other side."""

from __future__ import annotations

import io
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from farhand.engine import runtime as packed_runtime

LENGTH = struct.Struct(">I")
PATIENCE_S = 30.0


def make_runtime(directory: Path) -> Path:
    """The runtime as the server packs it: nothing but the parts an engine may import."""
    with zipfile.ZipFile(io.BytesIO(packed_runtime.build())) as archive:
        archive.extractall(directory)
    return directory


class FakeAgent:
    """One engine and what it has said so far."""

    def __init__(self, directory: Path, runtime: Path, python: str = sys.executable, **env: str) -> None:
        self.directory = directory
        for name in ("bundle", "blobs", "scratch"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self.kept: list[dict[str, Any]] = []
        self.frames: list[dict[str, Any]] = []
        self._read = 0
        self._jobs = 0
        self.spool = directory / "none"
        self.sock, theirs = socket.socketpair()
        self.output, write_end = os.pipe()
        os.set_blocking(self.output, False)
        entry = runtime / "farhand" / "sdk" / "engine.py"
        theirs.set_inheritable(True)
        self.process = subprocess.Popen(
            [python, "-I", "-S", str(entry), "--fd", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "FARHAND_ENGINE": "test", **env},
            start_new_session=True,
        )
        theirs.close()
        os.close(write_end)
        self.raw = b""
        self._gone_on = 0
        self.ready = self.until("ready")

    # ------------------------------------------------------------ what tests say

    def bundle(self, name: str, text: str, directory: str = "bundle") -> None:
        """Write a module of the project."""
        path = self.directory / directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(
        self, entry: str, args: Any = None, kind: str = "run", directory: str = "bundle", **more: Any
    ) -> None:
        """Hand over a job."""
        self._jobs += 1
        self._gone_on = 0
        self.spool = self.directory / f"job{self._jobs}.engine"
        self._read = 0
        header = {
            "job": f"job{self._jobs}",
            "lease": self._jobs,
            "attempt": 1,
            "run": "run1",
            "kind": kind,
            "flow": entry.rpartition(":")[2],
            "entry": entry,
            "args": {"enc": "json", "text": json.dumps({} if args is None else args)},
            "key": "",
            "bundle_dir": str(self.directory / directory),
            "cwd": str(self.directory / "scratch"),
            "spool": str(self.spool),
            "blobs": str(self.directory / "blobs"),
            "kept": len(self.kept),
            "timeout_s": None,
            "grace_s": 0.5,
            "settings": {},
        }
        if "value" in more:
            header["args"] = more.pop("value")
        self.send("job", **{**header, **more})

    def run(self, entry: str, args: Any = None, **more: Any) -> dict[str, Any]:
        """Hand over a job and wait for its end; the body of its result."""
        self.start(entry, args, **more)
        self.until("done")
        return self.result()

    def send(self, kind: str, /, **fields: Any) -> None:
        text = json.dumps({"type": kind, **fields}).encode()
        self.sock.sendall(LENGTH.pack(len(text)) + text)

    # ------------------------------------------------------------ what the engine says

    def until(
        self, kind: str, where: Callable[[dict[str, Any]], bool] = lambda frame: True
    ) -> dict[str, Any]:
        """The next frame of a type; requests on the way are answered."""
        while True:
            frame = self.receive()
            assert frame is not None, f"the engine ended: {self.drain()!r}"
            self.frames.append(frame)
            if frame["type"] == "request":
                self.answer(frame)
            if frame["type"] == "bell":
                self.send("arm", read=self.spool.stat().st_size, acked=self.spool.stat().st_size)
                self.let_go_on()
            if frame["type"] == kind and where(frame):
                return frame

    def let_go_on(self) -> None:
        """A job that was blocked and has what it waited for gets its slot again at once."""
        for event in self.events("unblocked")[self._gone_on :]:
            self._gone_on += 1
            self.send("proceed", n=event["n"])

    def until_event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The n-th event of a kind, however long it takes to be written."""
        while len(self.events(kind)) < count:
            self.until("bell")
        return self.events(kind)[count - 1]

    def answer(self, frame: dict[str, Any]) -> None:
        if frame["kind"] == "checkpoints":
            items = [i for i in self.kept if i["number"] > frame["args"]["after"]]
            self.send("reply", id=frame["id"], body={"items": items[:2], "more": len(items) > 2})
        elif frame["kind"] == "blob":
            path = self.directory / "blobs" / frame["args"]["digest"].partition(":")[2]
            self.send("reply", id=frame["id"], body={"path": str(path)})

    def receive(self) -> dict[str, Any] | None:
        prefix = self._exactly(LENGTH.size)
        return None if prefix is None else json.loads(self._exactly(LENGTH.unpack(prefix)[0]) or b"null")

    def _exactly(self, count: int) -> bytes | None:
        content = b""
        deadline = time.monotonic() + PATIENCE_S
        while len(content) < count:
            self.drain()
            readable, _, _ = select.select([self.sock, self.output], [], [], 1.0)
            assert time.monotonic() < deadline, f"the engine says nothing; output: {self.raw!r}"
            if self.sock in readable:
                piece = self.sock.recv(count - len(content))
                if not piece:
                    return None
                content += piece
            elif self.process.poll() is not None and not readable:
                return None
        return content

    def drain(self) -> bytes:
        """What has reached descriptors 1 and 2."""
        try:
            while True:
                piece = os.read(self.output, 65536)
                if not piece:
                    break
                self.raw += piece
        except BlockingIOError:
            pass
        return self.raw

    # ------------------------------------------------------------ the spool

    def lines(self) -> list[Any]:
        whole = self.spool.read_text().rpartition("\n")[0]  # a line that is still being written is none yet
        return [json.loads(line) for line in whole.splitlines()]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the job's events of a kind."""
        return [line[1] for line in self.lines() if line[0] == kind] if self.spool.exists() else []

    def texts(self, stream: str | None = None) -> list[str]:
        """The job's log lines."""
        return [body["text"] for body in self.events("log") if stream in (None, body["stream"])]

    def result(self) -> dict[str, Any]:
        assert self.lines()[-1][0] == "result", self.lines()[-3:]
        return self.lines()[-1][1]

    def value(self) -> Any:
        """The value of a completed job."""
        result = self.result()
        assert result["state"] == "completed", result
        return json.loads(result["value"]["text"])

    def keep_outcomes(self) -> None:
        """The outcomes in this job's spool are what the next attempt is told of."""
        self.kept = [
            {"number": number, "key": body["key"], "body": body}
            for number, body in enumerate(self.events("checkpoint"), 1)
            if body["kept"]
        ]

    def outcome(self, call: dict[str, Any], state: str = "completed", value: Any = None, **more: Any) -> None:
        """Tell the end of a placed call."""
        body = {
            "key": call["key"],
            "name": call["name"],
            "state": state,
            "started_at": 1.0,
            "ended_at": 2.0,
            **more,
        }
        if state == "completed":
            body["value"] = {"enc": "json", "text": json.dumps(value)}
        self.send("outcome", key=call["key"], body=body)

    def close(self) -> None:
        self.sock.close()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            os.close(self.output)
