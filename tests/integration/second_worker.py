"""A worker of its own kind, written from docs/protocol.md: ``python second_worker.py URL TOKEN_FILE NAME``.

It executes calls, and runs that call nothing placed, in a process each, and does the engine's part itself.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
import urllib.request
import uuid
import zipfile
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

ENGINE = """
import base64, importlib, inspect, json, pickle, sys, traceback
bundle, entry, kind, result = sys.argv[1:]
sys.path.insert(0, bundle)
args = json.load(sys.stdin)
try:
    module, _, name = entry.partition(":")
    found, value = importlib.import_module(module), None
    if kind != "import":
        text = args["text"]
        given = json.loads(text) if args["enc"] == "json" else pickle.loads(base64.b64decode(text))
        positional, named = ([], given) if kind == "run" else given
        value = inspect.unwrap(getattr(found, name))(*positional, **named)
    answer = {"state": "completed", "value": {"enc": "json", "text": json.dumps(value)}}
except Exception as e:
    told = {"type": type(e).__name__, "module": type(e).__module__, "message": str(e)}
    answer = {"state": "failed", "message": str(e), "error": {**told, "traceback": traceback.format_exc()}}
open(result, "w").write(json.dumps(answer))
"""


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Job:
    """One (job, lease): its events from number 1 on, and how many of them are recorded."""

    def __init__(self, assign):
        self.assign = assign
        self.key = {"job": assign["job"], "lease": assign["lease"]}
        self.events, self.recorded, self.started_at, self.ended = [], 0, None, False
        self.process = None

    def held(self):
        return {**self.key, "started_at": self.started_at, "ended": self.ended}

    def kill(self):
        if self.process is not None and self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)


class Worker:
    def __init__(self, url, token, name):
        self.url, self.token, self.name = url.rstrip("/"), token, name
        self.instance = uuid.uuid4().hex
        self.jobs, self.sent_at, self.tasks = {}, {}, set()
        self.link, self.welcome, self.evidence = None, {}, 0.0
        self.directory = Path(tempfile.mkdtemp(prefix="second-worker-"))

    async def run(self):
        self.spawn(self.watch())
        delay_s = 0.5
        while True:
            try:
                await self.attend()
                delay_s = 0.5
            except (OSError, WebSocketException):
                delay_s = min(5.0, delay_s * 2)
            self.link = None
            await asyncio.sleep(random.uniform(0, delay_s))

    async def attend(self):
        """One session, from the hello to its end."""
        url = "ws" + self.url[len("http") :] + "/api/v1/workers/attach"
        headers = {"Authorization": f"Bearer {self.token}"}
        async with connect(url, additional_headers=headers, ping_interval=None, proxy=None) as link:
            began_at = now()
            await link.send(json.dumps(self.hello()))
            answer = json.loads(await asyncio.wait_for(link.recv(), 10))
            if answer["type"] == "refused" and answer["final"]:
                sys.exit(f"refused: {answer['message']}")
            if answer["type"] != "welcome":
                return
            self.welcome, self.link, self.evidence = answer, link, began_at
            for line in answer["resume"]:
                self.resume(line)
            self.sent_at.clear()
            self.spawn(self.beat(link))
            async for text in link:
                message = json.loads(text)
                getattr(self, "on_" + message["type"], lambda _: None)(message)

    def hello(self):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        who = {"name": self.name, "instance": self.instance, "boot_id": boot_id, "host": platform.node()}
        what = {"python": platform.python_version(), "parallel": 2, "protocol": [1, 1], "version": "second"}
        kept = {name: self.welcome.get(name) for name in ("session_key", "incarnation")}
        return {"type": "hello", **who, **what, **kept, "held": [job.held() for job in self.jobs.values()]}

    async def beat(self, link):
        n = 0
        while self.link is link:
            n += 1
            self.sent_at[n] = now()
            await self.send({"type": "heartbeat", "n": n})
            await asyncio.sleep(self.welcome["times"]["heartbeat_s"])

    async def watch(self):
        """Nothing runs on without evidence that is younger than a lease."""
        while True:
            lease_s = self.welcome.get("times", {}).get("lease_s", 15.0)
            await asyncio.sleep(lease_s / 20)
            if now() - self.evidence >= lease_s * 0.9:
                for job in self.jobs.values():
                    job.kill()

    async def send(self, message):
        if self.link is not None:
            with contextlib.suppress(WebSocketException):  # what counts is sent again in the next session
                await self.link.send(json.dumps(message))

    def spawn(self, work):
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def resume(self, line):
        job = self.jobs.get((line["job"], line["lease"]))
        if job is not None and line["fenced"]:
            self.on_fenced(line)
        elif job is not None:
            job.recorded = line["recorded"].get("engine", 0)
            self.spawn(self.report(job))

    def on_ack(self, message):
        if message.get("n") is not None:
            self.evidence = max(self.evidence, self.sent_at.pop(message["n"], 0.0))
            return
        job = self.jobs.get((message["job"], message["lease"]))
        if job is not None:
            job.recorded = max(job.recorded, message["seq"])
            if job.ended and job.recorded == len(job.events):
                del self.jobs[message["job"], message["lease"]]

    def on_assign(self, message):
        job = self.jobs[message["job"], message["lease"]] = Job(message)
        self.spawn(self.execute(job))

    def on_cancel(self, message):
        job = self.jobs.get((message["job"], message["lease"]))
        if job is not None:
            job.kill()

    def on_fenced(self, message):
        job = self.jobs.pop((message["job"], message["lease"]), None)
        if job is not None:
            job.kill()

    async def execute(self, job):
        await self.send({"type": "accepted", **job.key, "started_at": None})
        try:
            bundle = await asyncio.to_thread(self.bundle, job)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            return await self.end(job, "exit", {"reason": "not_started", "message": str(error)})
        result = self.directory / f"{job.key['job']}-{job.key['lease']}"
        assign = job.assign
        words = [sys.executable, "-c", ENGINE, str(bundle), assign["entry"], assign["kind"], str(result)]
        job.process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, cwd=self.directory, start_new_session=True
        )
        job.started_at = time.time()
        who = {"pid": job.process.pid, "python": platform.python_version(), "host": platform.node()}
        job.events.append(["started", {"at": job.started_at, **who}])
        await self.report(job)
        await job.process.communicate(json.dumps(assign["args"]).encode())
        if result.exists():
            return await self.end(job, "result", json.loads(result.read_text()))
        return await self.end(job, "exit", {"reason": "crashed", "message": "no result was left"})

    async def end(self, job, kind, body):
        job.ended = True
        job.events.append([kind, {"at": time.time(), **body}])
        await self.report(job)

    async def report(self, job):
        """Send what is not recorded yet; a number that comes twice is ignored."""
        if job.events[job.recorded :]:
            batch = {"first": job.recorded + 1, "events": job.events[job.recorded :]}
            await self.send({"type": "event", **job.key, "source": "engine", **batch})

    def bundle(self, job):
        """The project's files, unpacked under their digest."""
        digest = job.assign["bundle"]
        home = self.directory / digest.replace(":", "-")
        if not home.exists():
            headers = {"Authorization": f"Bearer {self.token}"}
            headers.update({"Farhand-Job": job.key["job"], "Farhand-Lease": str(job.key["lease"])})
            request = urllib.request.Request(f"{self.url}/api/v1/artifacts/{digest}", headers=headers)
            content = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()
            if "sha256:" + hashlib.sha256(content).hexdigest() != digest:
                raise ValueError(f"what arrived is not {digest}")
            zipfile.ZipFile(io.BytesIO(content)).extractall(home)
        return home


if __name__ == "__main__":
    asyncio.run(Worker(sys.argv[1], Path(sys.argv[2]).read_text().strip(), sys.argv[3]).run())
