"""Asks for machines: watches what is configured, and what waits for a machine that is not there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from ..engine.machines import Check, Machines, ProvisionerView, checked_name
from ..engine.service import Service
from ..errors import Conflict, FarhandError, NotFound, Usage
from . import config
from .carrier import Carrier, Home
from .command import Command
from .config import Settings
from .desk import Desk
from .interface import Provisioner, Reach, SubmitFailed
from .slurm.provisioner import Slurm

log = logging.getLogger("farhand")

VALID_S = 24 * 3600.0
"""How long the token of a machine's worker is valid: so long it may wait in a queue."""

REMEMBERED_S = 3600.0
"""So long the worker of a machine that has ended is shown among the workers."""

_LOOK_S = 1.0
_LOOK_BACK_S = 60.0
_BREATH_S = 0.1
Seen = tuple[tuple[int, int, int] | None, ...]
Kinds = Mapping[str, Callable[[Settings, Path], Provisioner]]

KINDS: Kinds = {"slurm": Slurm, "command": Command}
"""Type → what is one."""


class Provisioning(Service):
    """Every provisioner of ``directory``, which keeps what it must in ``state``.

    ``url`` and ``pin`` are how other machines reach this server, ``home`` tells where those go that come by
    ssh; ``forget`` has the server forget a worker.
    """

    name = "provisioning"

    def __init__(
        self,
        machines: Machines,
        directory: Path,
        state: Path,
        url: str,
        pin: str = "",
        home: Callable[[], Home] | None = None,
        kinds: Kinds = KINDS,
        valid_s: float = VALID_S,
        forget: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__()
        self._machines = machines
        self._directory = directory
        self._state = state
        self._url = url
        self._pin = pin
        self._home = home
        self._kinds = kinds
        self._valid_s = valid_s
        self._forget = forget
        self._look_back_at = 0.0
        self._desks: dict[str, Desk] = {}
        self._carriers: dict[str, Carrier] = {}
        self._seen: Seen = ()
        machines.tester = self._test

    async def open(self) -> None:
        """Read what is configured and take over what was asked for. Raises `Usage`, naming the field."""
        self._seen = await asyncio.to_thread(self._look)
        read = await asyncio.to_thread(config.read, self._directory, self._url)
        await self._machines.load()
        await self._configure(read)
        for machine in self._machines.orphans():
            left = f"; job {machine.external} may still be there" if machine.external else ""
            reason = f"its provisioner is not configured any more{left}"
            await self._machines.change(machine, "ended", reason=reason)

    async def _work(self) -> None:
        while True:
            await self._reread()
            for desk in self._desks.values():
                desk.wake()
            await self._ask()
            await self._look_back()
            await asyncio.sleep(_BREATH_S)  # a burst of changes is one look
            await self._machines.changed.wait(_LOOK_S)

    async def _ask(self) -> None:
        for shape in self._machines.wanted():
            desk = self._desks.get(shape.provisioner)
            if desk is not None and desk.may_ask(shape.name):
                name = checked_name(shape.provisioner, shape.name, secrets.token_hex(4))
                await self._machines.ask_for(shape, name, self._valid_s)
                desk.wake()

    async def _look_back(self) -> None:
        """Workers of machines that ended long ago leave the list; their attempts keep the name."""
        if self._forget is None or time.monotonic() < self._look_back_at:
            return
        self._look_back_at = time.monotonic() + _LOOK_BACK_S
        for name in await self._machines.gone(REMEMBERED_S):
            with contextlib.suppress(NotFound, Conflict):  # it holds something still: the next look
                await self._forget(name)

    # ------------------------------------------------------------ what is configured

    def _look(self) -> Seen:
        found: list[tuple[int, int, int] | None] = []
        for name in (config.FILE_NAME, config.TOML_NAME):
            try:
                status = (self._directory / name).stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)

    async def _reread(self) -> None:
        """Take what has changed; what cannot be taken leaves things as they are, and is shown."""
        seen = await asyncio.to_thread(self._look)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            read = await asyncio.to_thread(config.read, self._directory, self._url)
        except Usage as error:
            log.error("provisioners stay as they were: %s", error)
            self._machines.say_of_file(str(error))
            return
        self._machines.say_of_file("")
        try:
            await self._configure(read)
        except BaseException:  # half of it may have been taken: the next look takes the rest
            self._seen = ()
            raise

    async def _configure(self, read: tuple[Settings, ...]) -> None:
        """These provisioners there are from now on; one that goes gives its machines back, if it is to."""
        wanted = {settings.name: settings for settings in read}
        for name, desk in list(self._desks.items()):
            if wanted.get(name) == desk.settings:
                continue
            if name not in wanted and desk.settings.on_stop == "cancel":
                await desk.leave("its provisioner is not configured any more")
            del self._desks[name]
            await self._put_away(desk)
        self._machines.offer(_view(settings) for settings in read)
        for settings in read:
            if settings.name not in self._desks:
                provisioner = self._kinds[settings.type](settings, self._state)
                reach = partial(self._reach, settings)
                desk = self._desks[settings.name] = Desk(settings, provisioner, self._machines, reach)
                if settings.route == "ssh" and self._home is not None:
                    say = partial(desk.say, "relay")
                    kept = self._state / f"relay-{settings.name}.port"
                    carrier = self._carriers[settings.name] = Carrier(settings, self._home(), say, kept)
                    carrier.start()
                await desk.give_up_changed()
                desk.start()

    def _reach(self, settings: Settings) -> Reach:
        if settings.route == "direct":
            return Reach(settings.engine_url or self._url, self._pin)
        carrier = self._carriers[settings.name]
        if not carrier.url_file:
            raise SubmitFailed(f"the relay on {settings.login} is away: {carrier.trouble}")
        return Reach(carrier.url, carrier.pin, carrier.url_file)

    async def _put_away(self, desk: Desk) -> None:
        carrier = self._carriers.pop(desk.settings.name, None)
        await desk.close()
        if carrier is not None:
            await carrier.stop()

    async def close(self) -> None:
        """The server stops: each gives its machines back, or keeps them, as it is configured."""
        await self.stop()
        await asyncio.gather(*(self._close(desk) for desk in self._desks.values()))
        self._desks.clear()

    async def _close(self, desk: Desk) -> None:
        try:
            if desk.settings.on_stop == "cancel":
                await desk.leave("the server stopped")
            await self._put_away(desk)
        except FarhandError as error:
            log.error("provisioner %s was not closed in order: %s", desk.settings.name, error)

    async def _test(self, name: str, submit: bool) -> list[Check]:
        carrier = self._carriers.get(name)
        if carrier is not None and not carrier.url_file:
            await carrier.try_now()
        return await self._desks[name].test(f"farhand-test-{secrets.token_hex(4)}", submit)


def _view(settings: Settings) -> ProvisionerView:
    return ProvisionerView(
        settings.name,
        settings.type,
        settings.login or "here",
        settings.shapes(),
        settings.on_stop,
        settings.provision_timeout_s,
        settings.max_idle_s,
    )
