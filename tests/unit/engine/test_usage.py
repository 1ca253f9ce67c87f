"""What is free, who holds the rest, and what waits for it."""

from __future__ import annotations

from dataclasses import replace

from farhand.engine.fleet import Fleet
from farhand.engine.member import ONLINE
from farhand.engine.queue import Queue
from farhand.engine.usage import Resources
from farhand.model import Ask
from farhand.placement import Placement
from farhand_worker import protocol
from tests.unit.engine.records import FakeLink, a_job


def test_the_amounts_of_a_worker_are_told_with_who_holds_them_and_who_waits() -> None:
    fleet = Fleet(protocol.Times())
    queue = Queue(fleet.kin_of)
    box = fleet.member("box")
    box.parallel, box.inventory = 2, protocol.Inventory(cpus=8, gpus=1, devices=["GPU-a"])
    box.state, box.link, box.service_host = ONLINE, FakeLink(), "box.lan"
    fleet.member("gone").state = "offline"
    held = a_job("held", name="fit", ask=Ask(cpus=6, gpus=1), devices=("GPU-a",), lease=7)
    fleet.hold(box, held, 7)
    waits = a_job("waits", name="fit", ask=Ask(cpus=4))
    queue.add(waits, 10.0)
    lane = queue.lane_of(waits)
    assert lane is not None
    queue.explain(lane, lambda: Placement(None, message="waits for 4 cpus: box has 2 of 8 cpus free"))
    usage = Resources(fleet, queue).usage()
    (worker,) = usage.workers
    assert worker.service_host == "box.lan"
    box.service_host, box.address = "", "10.0.0.7"
    assert Resources(fleet, queue).usage().workers[0].service_host == "10.0.0.7"
    assert worker.free == {"slots": 1, "cpus": 2, "gpus": 0, "ram_mb": None}
    (by,) = worker.held
    assert (by.job, by.takes.cpus, by.devices, by.blocked) == ("held", 6, ("GPU-a",), "")
    (job,) = usage.waiting
    assert (job.job, job.asks, usage.queued) == ("waits", "4 cpus", 1)
    assert job.message == "waits for 4 cpus: box has 2 of 8 cpus free"
    fleet.changed(replace(held, blocked="blocked"))
    (worker,) = Resources(fleet, queue).usage().workers
    assert worker.free == {"slots": 2, "cpus": 8, "gpus": 0, "ram_mb": None}
