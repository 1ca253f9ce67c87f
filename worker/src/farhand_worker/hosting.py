"""A service on this worker: one start of its process, from the hand-off to its end, and how it is meanwhile.

It is held like any attempt of a job and ends as one, but no engine executes it: the warden starts its command
itself. Whether it is healthy is asked here, of the process that was started: only while that, or what it has
started, listens on the port is anybody there believed. Nothing but its own end, an order or the loss of the
lease ends it; one that answers slowly is said to, and left alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .blobs import NotFetched
from .clock import wall_now
from .engine import Command, Ended, Engine
from .fates import exit_of, fate_of
from .handing import reports_of
from .host import Host
from .listening import Place, free_port, is_still, place_of, until_free
from .preparing import code_tree
from .probing import Unwell, unwell
from .protocol import (
    Assign,
    Exit,
    Hosting,
    Outcome,
    Proceed,
    ProtocolViolation,
    Reply,
    Request,
    ServiceState,
    Started,
)
from .reports import WRITE_AGAIN_S
from .transfer import Claim

TAIL_CHARS = 4096
LINE_CHARS = 300
SLOW_START = "slow_start"
_LOOKS_BETWEEN_BEATS = 10
_PLACE = re.compile(r"\{(port|weights|code)\}")
_log = logging.getLogger("farhand.worker")


class Hosted:
    """One start of a service. It has the methods of `Attempt` that its holder calls."""

    begun = True
    left_in_order = False

    def __init__(self, host: Host, assign: Assign) -> None:
        self.assign = assign
        self.service = _hosting(assign.args)
        self.reports = reports_of(assign, host)
        self.claim = Claim(assign.job, assign.lease)
        self.over = asyncio.Event()
        self._place = Place(None)
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._engine: Optional[Engine] = None
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._preparing: Optional[asyncio.Task[Engine]] = None
        self._killing: Optional[asyncio.TimerHandle] = None
        self._why: Optional[str] = None
        self._secrets: Dict[str, asyncio.Future[str]] = {}
        self._told: Optional[Tuple[str, str, str, Optional[int]]] = None
        self._unwell = Unwell("starting", "is being started")
        self._was_healthy = False
        self._tail, self._last_line = "", ""
        self._scratch = host.state.scratch / f"{assign.job}-{assign.lease}"

    @property
    def ended(self) -> bool:
        """Whether no process runs any more, or none will in a moment."""
        return self.over.is_set() or self._why is not None

    @property
    def strict(self) -> bool:
        """Whether an outage may not be ridden out."""
        return self.assign.strict

    # ------------------------------------------------------------ the life of it

    def start(self, predecessors: Sequence[Any]) -> None:
        """Everything from the hand-off to the seal, once those that it replaces are over."""
        self._host.speaks(self)
        self._host.background(self._run(predecessors))

    async def _run(self, predecessors: Sequence[Any]) -> None:
        for older in predecessors:
            await older.over.wait()
        end, trouble = None, ""
        try:
            if self._why is None:
                self._preparing = asyncio.ensure_future(self._prepare())
                self._engine = await self._preparing
                end = await self._keep(self._engine)
        except (NotFetched, OSError) as error:
            trouble = f"the service could not be started: {error}"
        except asyncio.CancelledError:
            trouble = "the service could not be started"
        await self._seal(self._exit(end, trouble))
        self._host.cache.let_go(self.claim)
        await self._loop.run_in_executor(None, shutil.rmtree, self._scratch, True)
        self.over.set()
        self._host.attempt_over(self)

    async def _prepare(self) -> Engine:
        host, assign, service = self._host, self.assign, self.service
        code = await code_tree(host, assign, self.claim) if assign.bundle else None
        weights = await host.cache.blob(service.weights, self.claim) if service.weights else None
        secrets = [await self._secret(name) for name in self._declared]
        port = service.port or free_port()
        await until_free(port, host.times.margin_s)  # if it is not by then, the service will say so itself
        self._scratch.mkdir(parents=True, exist_ok=True)
        known = {"port": str(port), "weights": str(weights or ""), "code": str(code or "")}
        environ = {name: filled(value, known) for name, value in service.env.items()}
        environ.update({variable_of(name): value for name, value in zip(self._declared, secrets)})  # noqa: B905
        if code is not None:
            environ["PYTHONPATH"] = _paths(code, environ.get("PYTHONPATH"))
        command = Command(
            f"service {service.name}",
            [filled(word, known) for word in service.command],
            environ,
            self._scratch,
            assign.strict,
            assign.cpus,
            None if assign.devices is None else tuple(assign.devices),
        )
        engine = await host.pool.host(command, self)
        for value in secrets:
            engine.hide(value)
        self._port = port
        await engine.begun.wait()
        return engine

    async def _keep(self, engine: Engine) -> Ended:
        """Watch over it until it has ended."""
        if self._why is not None:
            self._host.pool.kill(engine)
        elif engine.pid is not None:
            started = Started(wall_now(), engine.pid, "", os.uname().nodename)
            while not self._tell(started):  # noqa: ASYNC110 - a disk does not say when it has room
                await asyncio.sleep(WRITE_AGAIN_S)
        watch = asyncio.ensure_future(self._watch(engine))
        try:
            done, _ = await asyncio.wait({watch, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if watch in done:
                watch.result()  # a mistake of ours ends this agent: nobody would look after the service
            return await self._ended
        finally:
            watch.cancel()
            self._place = Place(None)
            if self._killing is not None:
                self._killing.cancel()

    # ------------------------------------------------------------ how it is

    async def _watch(self, engine: Engine) -> None:
        began = self._loop.time()
        while engine.end is None and engine.pid is not None:
            try:
                trouble = await self._look(engine.pid)
            except OSError as error:  # of this machine, such as too many open files
                trouble = Unwell("health_refused", f"could not be looked at: {error}")
            self._note(trouble)
            if not self._was_healthy and self._loop.time() - began > self.service.start_s:
                self._end(SLOW_START)
            beat_s = self._host.times.heartbeat_s
            await asyncio.sleep(beat_s if self._was_healthy else beat_s / _LOOKS_BETWEEN_BEATS)

    async def _look(self, pid: int) -> Optional[Unwell]:
        service, port = self.service, self._port
        place = await self._loop.run_in_executor(None, place_of, pid, port)
        self._place = place
        if place.host is None:
            return _not_there(place, port, self._was_healthy)
        if service.health is None:
            return None
        return await unwell(place.host, port, service.health, service.health_timeout_s)

    async def listens(self) -> Optional[Tuple[str, int]]:
        """Where it listens, while it does; the port may have become another's since the last look."""
        place = self._place
        if self.ended or place.host is None:
            return None
        still = await self._loop.run_in_executor(None, is_still, place, self._port)
        return (place.host, self._port) if still and not self.ended else None

    def _note(self, trouble: Optional[Unwell]) -> None:
        """Report how it is, when that is news."""
        port = None if self._place.host is None else self._port
        if trouble is not None:
            self._unwell = trouble
            reason = trouble.reason if self._was_healthy or trouble.reason == "port_taken" else "starting"
            state = ("degraded", reason, trouble.message, port)
        else:
            state = ("healthy", "", "", port)
        if state != self._told and self._tell(ServiceState(wall_now(), *state)):
            self._told = state
        self._was_healthy = self._was_healthy or trouble is None

    def _tell(self, event: Any) -> bool:
        """Whether a report could be written down; on a full disk it is tried again."""
        try:
            self.reports.tell(event)
        except OSError:
            return False
        self._host.wake()
        return True

    # ------------------------------------------------------------ what ends it

    def stop(self, reason: str) -> None:
        """End it: SIGTERM to its group now, SIGKILL to all of it after its time to stop."""
        self._end(reason)

    def _end(self, why: str) -> None:
        if self._why is not None or self.over.is_set():
            return
        self._why = why
        if self._engine is not None:
            self._host.pool.terminate(self._engine)
            self._killing = self._loop.call_later(self.service.stop_s, self._kill)
        elif self._preparing is not None:
            self._preparing.cancel()

    def end_now(self, fate: str) -> None:
        """Kill at once, without grace; ``fate`` is why."""
        if self.over.is_set():
            return
        self._why = self._why or fate
        if self._engine is not None:
            self._kill()
        elif self._preparing is not None:
            self._preparing.cancel()

    def fence(self) -> None:
        """The lease is not current: kill at once, and nothing of it is reported any more."""
        self.reports.delete()
        self.end_now("cancelled")

    def _kill(self) -> None:
        if self._engine is not None:
            self._host.pool.kill(self._engine)

    def _exit(self, end: Optional[Ended], trouble: str) -> Exit:
        """How this start ended, in words."""
        why = self._why or (None if end is None else fate_of(end))
        at, tail = wall_now(), self._tail
        if why == "cancelled":
            return Exit(at, "cancelled", "the service was stopped", tail=tail)
        if why == SLOW_START:
            text = f"was not healthy within {self.service.start_s:g} s: {self._unwell.message}"
            return Exit(at, "crashed", f"the service {text}", tail=tail)
        if end is None:
            return exit_of(self.assign, why, Exit(at, "not_started", trouble, tail=tail))
        text = f"the service {ended_text(end)}"
        if self._last_line:
            text += f": {self._last_line[:LINE_CHARS]}"
        return exit_of(self.assign, why, Exit(at, "crashed", text, end.code, end.signal, tail))

    async def _seal(self, end: Exit) -> None:
        await self.reports.seal_at_last(end)
        self._host.wake()

    # ------------------------------------------------------------ what its process does

    def frame(self, header: Dict[str, Any]) -> None:
        """A service has no channel, and so no frames."""

    def lines(self, lines: List[str]) -> None:
        """Output: for the service's log, the agent's, and the end of it for when it has ended."""
        self.reports.log(lines)
        self._host.wake()
        for line in lines:
            _log.info("service %s: %s", self.service.name, line)
        self._tail = (self._tail + "".join(line + "\n" for line in lines))[-TAIL_CHARS:]
        self._last_line = next((line for line in reversed(lines) if line.strip()), self._last_line)

    def engine_ended(self, end: Ended) -> None:
        """The process is gone with all it had started."""
        if not self._ended.done():
            self._ended.set_result(end)

    # ------------------------------------------------------------ what the server answers

    @property
    def _declared(self) -> List[str]:
        return [str(name) for name in self.assign.settings.get("secrets") or ()]

    async def _secret(self, name: str) -> str:
        self._secrets[name] = self._loop.create_future()
        self._ask(name)
        return await self._secrets[name]

    def _ask(self, name: str) -> None:
        assign = self.assign
        self._host.send(Request(f"secret {name}", assign.job, assign.lease, "secret", {"name": name}))

    def reply(self, message: Reply) -> None:
        """The value of a secret, or why there is none."""
        waiting = self._secrets.get(message.id.partition(" ")[2])
        if waiting is None or waiting.done():
            return
        if message.error is not None:
            waiting.set_exception(NotFetched(message.error))
        else:
            waiting.set_result(str((message.body or {}).get("value", "")))

    def ask_again(self) -> None:
        """A new session: what was asked and not answered is asked again."""
        for name, waiting in self._secrets.items():
            if not waiting.done():
                self._ask(name)

    def recorded(self, source: str, number: int) -> None:
        """The server has recorded up to ``number``."""
        self.reports.acknowledge(source, number)

    def outcome(self, message: Outcome) -> None:
        """A service places no calls."""

    def proceed(self, message: Proceed) -> None:
        """A service is never blocked."""


def filled(text: str, known: Dict[str, str]) -> str:
    """A word of a command or a value of its environment, with what is known here in the place of names."""
    return _PLACE.sub(lambda match: known[match.group(1)], text)


def variable_of(secret: str) -> str:
    """The variable that holds a secret: ``hf-token`` is in ``HF_TOKEN``."""
    return re.sub("[^A-Z0-9]", "_", secret.upper())


def ended_text(end: Ended) -> str:
    """How a process ended by itself."""
    if end.error is not None:
        return f"could not be started: {end.error}"
    return f"exited with code {end.code}" if end.signal is None else f"was ended by {end.text}"


def _not_there(place: Place, port: int, was_healthy: bool) -> Unwell:
    if place.taken:
        by = "" if place.by is None else f" (process {place.by})"
        return Unwell("port_taken", f"port {port} is held by another process{by}")
    reason = "health_refused" if was_healthy else "starting"
    return Unwell(reason, f"does not listen on port {port}" + ("" if was_healthy else " yet"))


def _paths(code: Path, given: Optional[str]) -> str:
    """Where Python finds the modules of the project, before what the description itself gives."""
    roots = [str(root) for root in (code, code / "src") if root.is_dir()]
    return os.pathsep.join([*roots, given] if given else roots)


def _hosting(args: Dict[str, Any]) -> Hosting:
    """What an assign says of its service; fields of a newer server are passed over."""
    known = {field.name for field in fields(Hosting)}
    try:
        return Hosting(**{name: value for name, value in args.items() if name in known})
    except TypeError as error:
        raise ProtocolViolation(f"an assign of a service that is none: {error}") from error
