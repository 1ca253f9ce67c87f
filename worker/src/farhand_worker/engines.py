"""All engines of one agent, kept warm between jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from .engine import Command, Ended, Engine, Key, Occupant
from .environment import engine_environment
from .forking import CHANNEL_FD
from .planting import Planted
from .state import StateDirectory
from .stems import Stem, Stems
from .warden_link import WardenLink
from .warden_process import Start
from .warm import Warm

JOBS_MAX = 1000
"""Jobs one engine executes before it is retired. One that has grown too large is retired sooner."""

_STARTS_MIN = 2
"""So many engines start at once, or as many as there are cores; more would only starve agent and warden."""

READY_S = 60.0
"""How long an engine may take to begin, before any user code is loaded."""

SUCCESSOR_AHEAD = 50
"""An engine's successor is started this many jobs before its last, so that no job waits for it."""

CLEARED_S = 5.0
"""So long a job waits for the engine of another to clear up, before it is given a new one."""

_QUIT_S = 5.0


class Pool:
    """All engines of one agent. Those without a job stay warm for a while, the latest first in use."""

    def __init__(self, state: StateDirectory, python: str, environ: Dict[str, str], idle_max: int) -> None:
        self._state = state
        self._python = python
        self._environ = environ
        self.idle_max = idle_max
        self._count = 0
        self._environment = ""
        self._starts = asyncio.Semaphore(max(_STARTS_MIN, os.cpu_count() or 1))
        self.began: Optional[Callable[[str, List[str]], None]] = None
        self._stems = Stems(python, self._start_stem, self._say, self.kill)
        self._warm: Warm[Engine] = Warm()
        self._clearing: Dict[Engine, Optional[asyncio.Event]] = {}
        self._starting: Optional[asyncio.Future[None]] = None
        self.engines: Dict[str, Engine] = {}
        self.warden: Optional[WardenLink] = None
        self._handlers: Dict[str, Callable[[Engine, Dict[str, Any]], None]] = {
            "spawned": self._spawned,
            "exited": self._exited,
        }

    def warm(self, key: Key, occupant: Occupant) -> Optional[Engine]:
        """An engine of this kind that has nothing to do, if there is one; it reports to ``occupant``."""
        engine = self._warm.take(key)
        if engine is not None:
            engine.patience.clear()
            engine.occupant = occupant
        return engine

    def clears(self, engine: Engine, within_s: float) -> None:
        """Its job has its result, and the next may come before it has cleared up after that one.

        One that comes to no end of that is killed.
        """
        self._clearing[engine] = None
        engine.patience.set(lambda: self.kill(engine), within_s)

    async def cleared(self, key: Key, occupant: Occupant) -> Optional[Engine]:
        """The same as `warm` of one that still clears up after its job, which takes less than a start."""
        for engine in list(self._clearing):
            if engine.key == key:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._clearance(engine), CLEARED_S)
                found = self.warm(key, occupant)
                if found is not None:
                    return found
        return None

    def adopt(self, planted: Planted) -> None:
        """Take over the stem that was begun before there was a pool: it is the first of these engines."""
        self._stems.adopt(planted, lambda stem: self._new_stem(stem, planted.output))

    def plant(self) -> None:
        """Engines will be needed: load what can be loaded before there is a runtime."""
        self._stems.plant()

    def prepare(self, runtime: Path) -> None:
        """Engines of this runtime will be needed: have the stem that they are forked from load it."""
        self._stems.of(runtime)

    async def start(self, key: Key, runtime: Path, occupant: Occupant) -> Engine:
        """A new engine for ``key`` that is ready and reports to ``occupant``; look at its ``end``."""
        await self._free_devices(key.devices or ())
        async with self._starts:
            engine = await self._started(key, runtime, occupant)
        self._note(engine)
        engine.occupant = occupant if engine.end is None else None
        return engine

    async def _started(self, key: Key, runtime: Path, occupant: Occupant) -> Engine:
        engine = await self._spawn(key, runtime)
        engine.occupant = occupant
        engine.timer = asyncio.get_running_loop().call_later(READY_S, self.kill, engine)
        try:
            await asyncio.shield(engine.ready)
        except asyncio.CancelledError:
            engine.occupant = None
            self.kill(engine)
            raise
        engine.timer.cancel()
        return engine

    async def host(self, service: Command, occupant: Occupant) -> Engine:
        """The process of a service, which has no channel; wait until it has ``begun``."""
        key = Key("", "", service.strict, (), service.name, service.cpus, service.devices)
        await self._free_devices(key.devices or ())
        engine = self._new(key, Path())
        engine.occupant = occupant
        output, output_far = os.pipe()
        engine.attach_output(output)
        environ = engine_environment(self._environ, engine.id, key.cpus, key.devices)
        environ.update(service.environ)
        none = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        start = Start(engine.id, self._found(service.argv, environ), environ, str(service.cwd))
        self._start(engine, start, [none, output_far])
        return engine

    def _found(self, argv: List[str], environ: Dict[str, str]) -> List[str]:
        """The command with its program's path; ``python`` is the interpreter that engines have."""
        if argv[0] in ("python", "python3"):
            return [self._python, *argv[1:]]
        return [shutil.which(argv[0], path=environ.get("PATH")) or argv[0], *argv[1:]]

    def release(self, engine: Engine, retire: bool) -> None:
        """A job is done: keep the engine warm, or let it end."""
        engine.occupant = None
        engine.jobs += 1
        self._has_cleared(engine)
        if engine.end is not None:
            return
        if retire or engine.doomed or engine.jobs >= JOBS_MAX or engine.environment != self._environment:
            self._retire(engine)
            return
        self._keep_warm(engine)
        for longest in self._warm.beyond(self.idle_max):
            self._retire(longest)
        if engine.jobs == JOBS_MAX - SUCCESSOR_AHEAD:
            self._starting = asyncio.ensure_future(self._start_successor(engine))

    def _keep_warm(self, engine: Engine) -> None:
        self._warm.put(engine)
        self._retire_when_idle(engine)

    def _retire_when_idle(self, engine: Engine) -> None:
        engine.patience.set(lambda: self._retire(engine))

    def environment_changed(self, digest: str) -> None:
        """Something was installed or removed: engines that do not know of it take no more jobs."""
        self._environment = digest
        for engine in self._warm.outdated(digest):
            self._retire(engine)

    def _note(self, engine: Engine) -> None:
        """What a new engine found installed is what is installed."""
        if engine.end is None and self.began is not None:
            self.began(engine.environment, engine.paths)

    def kill(self, engine: Engine) -> None:
        """Kill the engine's whole tree; its occupant hears of the end."""
        if self.warden is not None and engine.end is None:
            engine.doomed = True
            self.warden.kill(engine.id)

    def terminate(self, engine: Engine) -> None:
        """Send SIGTERM to the engine's group."""
        if self.warden is not None and engine.end is None:
            self.warden.terminate(engine.id)

    def kill_all(self) -> None:
        """Kill every engine. What they are forked from holds nobody's code, and no lease bounds it."""
        for engine in [each for each in self.engines.values() if not isinstance(each.occupant, Stem)]:
            self.kill(engine)

    def warden_message(self, message: Dict[str, Any]) -> None:
        """What the warden reports of an engine."""
        engine = self.engines.get(message["engine"])
        if engine is not None:
            self._handlers[message["is"]](engine, message)

    def warden_ended(self) -> None:
        """The warden is gone, and with it every engine."""
        for engine in list(self.engines.values()):
            self._gone(engine, Ended(None, 9, "warden"))

    # ------------------------------------------------------------ inside

    async def _clearance(self, engine: Engine) -> None:
        """Until it has cleared up, if it has not yet."""
        if engine in self._clearing:
            cleared = self._clearing[engine] = self._clearing[engine] or asyncio.Event()
            await cleared.wait()

    def _has_cleared(self, engine: Engine) -> None:
        engine.patience.clear()
        cleared = self._clearing.pop(engine, None)
        if cleared is not None:
            cleared.set()

    async def _free_devices(self, devices: Tuple[str, ...]) -> None:
        """An engine that is done may still hold memory on its device: it ends before another has that."""
        for engine in list(self._clearing):
            if set(engine.key.devices or ()) & set(devices):
                await self._clearance(engine)
        done = [
            engine
            for engine in self.engines.values()
            if engine.occupant is None and set(engine.key.devices or ()) & set(devices)
        ]
        for engine in done:
            if engine in self._warm:
                self._retire(engine)
        for engine in done:
            await engine.gone.wait()

    async def _start_successor(self, engine: Engine) -> None:
        """Have the next engine of this kind ready by the time this one retires."""
        successor = await self._spawn(engine.key, engine.runtime)
        if engine.end is None:
            self._warm.put_behind(successor, engine)
        else:
            self._keep_warm(successor)
        await successor.ready
        self._note(successor)

    async def _spawn(self, key: Key, runtime: Path) -> Engine:
        engine = self._new(key, runtime)
        near, far = socket.socketpair()
        near.setblocking(False)
        output, output_far = os.pipe()
        engine.attach_output(output)
        await asyncio.get_running_loop().create_unix_connection(lambda: engine.channel, sock=near)
        program = runtime / "farhand" / "sdk" / "engine.py"
        argv = [self._python, "-I", "-S", str(program), "--fd", str(CHANNEL_FD)]
        environ = engine_environment(self._environ, engine.id, key.cpus, key.devices)
        stem = self._stems.of(runtime)
        start = Start(engine.id, argv, environ, self._place())
        self._start(engine, start, [far.detach(), output_far], stem)
        if stem:
            self._stems.asked(engine)
        return engine

    def _start_stem(self, argv: List[str], occupant: Occupant) -> Engine:
        output, output_far = os.pipe()
        engine = self._new_stem(occupant, output)
        if self.warden is None:
            os.close(output_far)
            self._gone(engine, Ended(None, 9, "warden"))
        else:
            environ = engine_environment(self._environ, engine.id)
            self.warden.stem(Start(engine.id, argv, environ, self._place()), output_far)
        return engine

    def _place(self) -> str:
        """Where engines start: made again where it was cleared away with other temporary files."""
        self._state.scratch.mkdir(parents=True, exist_ok=True)
        return str(self._state.scratch)

    def _new_stem(self, occupant: Occupant, output: int) -> Engine:
        engine = self._new(Key("", "", False, (), "stem"), Path())
        engine.occupant = occupant
        engine.attach_output(output)
        return engine

    def _say(self, stem: Engine, line: str) -> None:
        if self.warden is not None:
            self.warden.say(stem.id, line)

    def _new(self, key: Key, runtime: Path) -> Engine:
        self._count += 1
        engine = Engine(self._state.engine_id(self._count), key, runtime)
        self.engines[engine.id] = engine
        return engine

    def _start(self, engine: Engine, start: Start, fds: List[int], stem: str = "") -> None:
        """Have the warden start it; the descriptors (channel, output) are its own from now on."""
        if self.warden is not None:
            self.warden.spawn(start, engine.key.strict, fds, stem)
            return
        for fd in fds:
            os.close(fd)
        self._gone(engine, Ended(None, 9, "warden"))

    def _retire(self, engine: Engine) -> None:
        self._leave_warm(engine)
        engine.patience.clear()
        engine.channel.send("quit")
        engine.timer = asyncio.get_running_loop().call_later(_QUIT_S, self.kill, engine)

    def _spawned(self, engine: Engine, message: Dict[str, Any]) -> None:
        engine.pid = message["pid"]
        if message["forked"]:
            self._stems.has_forked()
        engine.begun.set()

    def _exited(self, engine: Engine, message: Dict[str, Any]) -> None:
        self._gone(
            engine, Ended(message.get("code"), message.get("signal"), message["killed"], message.get("error"))
        )

    def _gone(self, engine: Engine, end: Ended) -> None:
        self.engines.pop(engine.id, None)
        self._has_cleared(engine)
        self._leave_warm(engine)
        engine.finish(end)

    def _leave_warm(self, engine: Engine) -> None:
        """It takes no more jobs; its successor, if it has one, takes them from now on."""
        successor = self._warm.drop(engine)
        if successor is not None:
            self._retire_when_idle(successor)
