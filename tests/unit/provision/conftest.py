"""A store and its services, with provisioners that do as they are told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from farhand.engine.attachment import Attached, Credential
from farhand.engine.machines import Machines
from farhand.engine.tokens import Tokens
from farhand.model import Ask, Job, Machine
from farhand.provision.desk import Desk
from farhand.provision.provisioning import Provisioning
from farhand_worker import protocol
from tests.harness.schedulers import FakeProvisioner
from tests.unit.engine.records import FakeLink, a_hello
from tests.unit.engine.world import World, a_store

GPU = Ask(labels=("gpu",))
URL = "https://flows.example.org"


@dataclass
class Office:
    """A server's provisioning, driven step by step: no loop of it runs."""

    world: World
    directory: Path
    fakes: dict[str, FakeProvisioner] = field(default_factory=dict[str, FakeProvisioner])
    interval_s: float = 0.0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A server starts on the store, with nothing in memory."""
        world = self.world
        tokens = Tokens(world.store, self.directory, {}, on_end=world.operations.expel)
        self.machines = Machines(
            world.store, tokens, world.fleet, world.fitness, world.queue, world.bus, world.wakeup
        )
        world.dispatcher._beyond = world.dispatcher._choosing._beyond = self.machines
        kinds = {"command": self._make}
        forget = world.operations.forget
        self.provisioning = Provisioning(
            self.machines, self.directory, self.directory, URL, kinds=kinds, forget=forget
        )

    def _make(self, settings: Any, _: Path) -> FakeProvisioner:
        fake = self.fakes.setdefault(settings.name, FakeProvisioner())
        fake.interval_s = self.interval_s
        return fake

    def configure(self, **fields: Any) -> None:
        """Write a file with one provisioner."""
        profile = {"name": "gpu", "labels": ["gpu"], **fields.pop("profile", {})}
        words = {what: ["true"] for what in ("submit", "status", "cancel")}
        settings = {"type": "command", "name": "hpc", "profiles": [profile], **words, **fields}
        (self.directory / "provisioners.json").write_text(json.dumps([settings]))

    async def open(self, **fields: Any) -> None:
        """Configure one provisioner and take it up; its loop is stopped at once."""
        self.configure(**fields)
        await self.provisioning.open()
        await self.hold_still()

    async def hold_still(self) -> None:
        """End the loops, so that steps are taken here alone."""
        for desk in self.provisioning._desks.values():
            await desk.stop()

    @property
    def fake(self) -> FakeProvisioner:
        return self.fakes["hpc"]

    @property
    def desk(self) -> Desk:
        return self.provisioning._desks["hpc"]

    async def step(self) -> None:
        """What is due now: the dispatcher looks, machines are asked for, the desk has its round."""
        await self.world.hand_over()
        await self.provisioning._ask()
        for desk in self.provisioning._desks.values():
            await desk._round()
        await self.world.hand_over()

    async def queued(self, ask: Ask = GPU, **fields: Any) -> Job:
        return await self.world.start_run(ask=ask, **fields)

    @property
    def open_machines(self) -> list[Machine]:
        return self.machines.of("hpc")

    async def ended(self) -> Machine:
        """The machine that ended last."""
        return (await self.world.store.machines.ended(1))[0]

    async def attaches(self, machine: Machine, **hello: Any) -> FakeLink:
        """The machine's worker dials in with its token."""
        link = FakeLink()
        credential = Credential(machine.name, machine.labels, machine.jti)
        said = a_hello(machine.name, **{"parallel": 1, **hello})
        answer = await self.world.attachments.attach(said, credential, link, "10.0.0.9")
        assert isinstance(answer, Attached)
        self.world.attachments.welcomed(answer.member, link)
        return link

    async def leaves(self, machine: Machine, link: FakeLink) -> None:
        """The machine's worker says goodbye."""
        await self.world.attachments.leave(self.world.fleet.member(machine.name), link, "nothing to do")

    def message(self, job: Job) -> str:
        """What the job says that it waits for."""
        return self.world.queue.reason_of_job(job.id)

    def trouble(self) -> str:
        return self.machines._views["hpc"].trouble


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with a_store(tmp_path / "home") as store:
        (tmp_path / "project").mkdir()
        made = Office(World(store), tmp_path / "project")
        yield made
        await made.provisioning.close()


def assigned(link: FakeLink) -> list[str]:
    """The jobs that a worker was handed."""
    return [assign.job for assign in link.of(protocol.Assign)]
