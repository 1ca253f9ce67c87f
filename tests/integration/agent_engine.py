"""A small engine that speaks the channel: it executes the Python text in the job's ``settings["code"]``.

The text finds ``report(kind, body, digests=None, urgent=False)``, ``log(text)``, ``ask(kind, args)``,
``cancelled`` (an event), ``outcomes`` (a queue) and ``job``. Its end is a ``result``: completed with the
variable ``value``, failed by an exception, or cancelled when the event is set. A text that defines ``clear``
says that the result is there, and has that called before the engine is done.
"""

from __future__ import annotations

import json
import os
import platform
import queue
import socket
import struct
import sys
import threading
import time

LENGTH = struct.Struct(">I")


class Engine:
    def __init__(self, fd: int) -> None:
        self.channel = socket.socket(fileno=fd)
        self.channel.set_inheritable(False)
        self.writing = threading.RLock()
        self.jobs: queue.Queue = queue.Queue()
        self.outcomes: queue.Queue = queue.Queue()
        self.replies: queue.Queue = queue.Queue()
        self.cancelled = threading.Event()
        self.spool = -1
        self.armed = True
        self.handlers = {
            "job": self.jobs.put,
            "cancel": lambda header: self.cancelled.set(),
            "arm": self.arm,
            "reply": self.replies.put,
            "outcome": self.outcomes.put,
            "quit": lambda header: os._exit(0),
        }

    def send(self, **header: object) -> None:
        text = json.dumps(header).encode()
        with self.writing:
            self.channel.sendall(LENGTH.pack(len(text)) + text)

    def listen(self) -> None:
        stream = self.channel.makefile("rb")
        while True:
            prefix = stream.read(4)
            if len(prefix) < 4:
                os._exit(75)
            header = json.loads(stream.read(LENGTH.unpack(prefix)[0]))
            self.handlers[header["type"]](header)

    def arm(self, header: dict) -> None:
        with self.writing:
            self.armed = True
            if self.spool >= 0 and os.fstat(self.spool).st_size > header["read"]:
                self.ring(False)

    def ring(self, urgent: bool) -> None:
        if urgent or self.armed:
            self.armed = False
            self.send(type="bell", urgent=urgent)

    def report(self, kind: str, body: dict, digests: object = None, urgent: bool = False) -> None:
        event = [kind, body] if digests is None else [kind, body, digests]
        with self.writing:
            os.write(self.spool, json.dumps(event, separators=(",", ":")).encode() + b"\n")
            self.ring(urgent)

    def log(self, text: str) -> None:
        self.report("log", {"at": time.time(), "text": text, "stream": "stdout", "level": "info"})

    def ask(self, kind: str, args: dict) -> dict:
        self.send(type="request", id="1", kind=kind, args=args)
        return self.replies.get()

    def execute(self, job: dict) -> None:
        self.cancelled.clear()
        self.armed = True
        self.spool = os.open(job["spool"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        os.chdir(job["cwd"])
        python = platform.python_version()
        self.report("started", {"at": time.time(), "pid": os.getpid(), "python": python, "host": "here"})
        names = {"job": job, "report": self.report, "log": self.log, "ask": self.ask}
        names.update(cancelled=self.cancelled, outcomes=self.outcomes, value=None, retire=False)
        try:
            exec(job["settings"].get("code", ""), names)
            state = "cancelled" if self.cancelled.is_set() else "completed"
            result = {
                "state": state,
                "at": time.time(),
                "value": {"enc": "json", "text": json.dumps(names["value"])},
            }
        except Exception as error:  # noqa: BLE001 - it is what the job did
            result = {"state": "failed", "at": time.time(), "message": repr(error)}
        self.report("result", result, names.get("digests"), urgent=True)
        with self.writing:
            os.close(self.spool)
            self.spool = -1
        if "clear" in names:
            self.send(type="result")
            names["clear"]()
        self.send(type="done", retire=names["retire"])


def main() -> None:
    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    if "--stem" in sys.argv:
        sys.path.insert(0, __file__.rpartition("/farhand/")[0])
        from farhand.sdk.stem import Stem

        Stem(fd).serve()
    engine = Engine(fd)
    threading.Thread(target=engine.listen, daemon=True).start()
    engine.send(type="ready", pid=os.getpid(), python=platform.python_version())
    while True:
        engine.execute(engine.jobs.get())


if __name__ == "__main__":
    main()
