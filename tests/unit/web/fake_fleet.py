"""Workers, machines and what they hold, that live in memory."""

from __future__ import annotations

from typing import Any

from farhand.engine.fitness import FlowCode
from farhand.engine.machines import Check, MachineView, ProvisionerView, Provisions
from farhand.engine.usage import Usage
from farhand.engine.workers import Held, Past, WorkerStatus
from farhand.errors import NotFound
from farhand.model import (
    Attempt,
    Event,
    Flavor,
    Flow,
    Page,
    Worker,
)
from farhand.provisioning import Shape
from farhand.sdk.sizes import size_mb_of

from .moment import T0


class FakeWorkers:
    def __init__(self) -> None:
        self.items = [
            Worker("gpu1", "online", ("gpu",), 2, "i1", "box", "3.12.1", "0.1.0", last_seen_at=T0),
            Worker("server", "online", (), 2, "i2", "here", "3.12.1", "0.1.0", last_seen_at=T0),
        ]
        self.orders: list[Any] = []
        self.holds = (Held("j1", "0run1", "train", "train", 7, 1),)

    async def list(self) -> list[WorkerStatus]:
        return [self._status(worker) for worker in self.items]

    async def get(self, name: str) -> WorkerStatus:
        for worker in self.items:
            if worker.name == name:
                return self._status(worker)
        raise NotFound(f"there is no worker {name!r}")

    def _status(self, worker: Worker) -> WorkerStatus:
        draining, needs_token = worker.drained_by != "", worker.state == "offline"
        said = "is there: 1 of 2 slots free"
        return WorkerStatus(worker, said, draining, self.holds, needs_token=needs_token)

    async def past(self, name: str, since: float) -> list[Past]:
        known = name in ("gpu1", "forgotten")
        return [Past(Attempt(7, "j1", "0run1", 1, "gpu1", since + 60.0), "train")] if known else []

    async def events(self, limit: int, *_: str | None, **about: str | None) -> Page[Event]:
        if about.get("worker") not in (None, "gpu1", "forgotten"):
            return Page([], None)
        return Page([Event(1, T0, "worker.attached", "gpu1 attached from box", None, "gpu1")], None)

    async def drain(self, name: str, by: str) -> bool:
        return await self._order(name, "drain", by)

    async def resume(self, name: str, by: str) -> bool:
        return await self._order(name, "resume", by)

    async def set_slots(self, name: str, slots: int) -> None:
        await self._order(name, "slots", slots)

    async def forget(self, name: str, settle: bool = False) -> int:
        await self._order(name, "forget", settle)
        return int(settle)

    async def _order(self, name: str, *order: Any) -> bool:
        await self.get(name)
        self.orders.append((name, *order))
        return True


class FakeResources:
    def usage(self) -> Usage:
        return Usage([], [], 0, Provisions())


class FakeMachines:
    """One provisioner that was asked for a machine, and works."""

    async def provisions(self) -> Provisions:
        shape = Shape("hpc", "gpu-small", ("gpu",), cpus=4, gpus=1, ram_mb=16_000)
        hpc = ProvisionerView("hpc", "slurm", "me@login", (shape,), "cancel", 900.0, 300.0)
        words = "requested hpc/gpu-small, Slurm job 4242, PENDING: Priority"
        asked = MachineView(
            "hpc-gpu-small-1f", "hpc", "gpu-small", "pending", "Slurm job 4242", "PENDING: Priority", words,
            T0, 61.0, 1, None, None,
        )  # fmt: skip
        return Provisions([hpc], [asked], "provisioners.json is no JSON")

    async def test(self, name: str, submit: bool) -> list[Check]:
        if name != "hpc":
            raise NotFound(f"there is no provisioner {name!r}; there are hpc")
        return [Check("run a command on me@login", True, "")]


class FakeFlavors:
    def __init__(self) -> None:
        self.items: dict[str, Flavor] = {}

    async def list(self) -> list[Flavor]:
        return list(self.items.values())

    async def set(self, name: str, cpus: int | None, gpus: int | None, ram: Any, by: str) -> bool:
        created = name not in self.items
        self.items[name] = Flavor(name, cpus, gpus, size_mb_of(ram) if ram else None, T0, by)
        return created

    async def delete(self, name: str) -> None:
        if self.items.pop(name, None) is None:
            raise NotFound(f"there is no flavor {name!r}")


class FakeFleet:
    def __init__(self) -> None:
        self.holders: dict[str, Any] = {}

    def holder(self, job: str) -> Any:
        return self.holders.get(job)


class FakeLeases:
    """Of a store, what says which leases are current and what may be read under them."""

    def __init__(self) -> None:
        self.current: set[tuple[str, int]] = set()
        self.readable: set[str] = set()

    async def is_current(self, job: str, lease: int, worker: str) -> bool:
        return (job, lease) in self.current

    async def may_read(self, job: str, lease: int, digest: str) -> bool:
        return (job, lease) in self.current and digest in self.readable


class FakeImports:
    """No import check is under way."""

    def owns(self, job: str) -> bool:
        return False


class FakeFitness:
    """Workers whose code is that of the server."""

    def drift(self, worker: str) -> str:
        return ""

    def code_of(self, worker: str, flows: list[Flow]) -> list[FlowCode]:
        return [FlowCode(flow.name, flow.fingerprint, "ready", "") for flow in flows]
