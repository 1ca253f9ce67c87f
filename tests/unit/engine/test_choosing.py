"""Who keeps room for whom, and when that ends."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.engine.choosing import Choosing
from farhand.engine.fitness import Fitness
from farhand.engine.fleet import Fleet
from farhand.engine.importchecks import ImportChecks
from farhand.engine.member import ONLINE, Member
from farhand.engine.queue import Queue
from farhand.engine.service import Wakeup
from farhand.model import Ask, Job
from farhand_worker import protocol
from tests.unit.engine.records import FakeLink, a_job

ANY = Ask()
BIG = Ask(cpus=8)


class Yard:
    """A queue, workers, and the choice between them."""

    def __init__(self) -> None:
        self.fleet = Fleet(protocol.Times())
        self.queue = Queue(self.fleet.kin_of)
        wakeup = Wakeup()
        imports = ImportChecks(self.fleet, wakeup, lambda _: True)
        fitness = Fitness(self.fleet, imports, self.queue, wakeup)
        self.choosing = Choosing(self.fleet, self.queue, fitness, reserve_after_s=60.0)

    def worker(self, name: str, parallel: int = 4, cpus: int | None = 8) -> Member:
        member = self.fleet.member(name)
        member.parallel, member.inventory = parallel, protocol.Inventory(cpus=cpus)
        member.state, member.link = ONLINE, FakeLink()
        return member

    def job(self, id: str, ask: Ask = ANY, **fields: Any) -> Job:
        job = a_job(id, ask=ask, queued_at=100.0, **fields)
        self.queue.add(job, 100.0)
        return job

    def goes_to(self, job: Job, now: float = 100.0) -> str | None:
        lane = self.queue.lane_of(job)
        assert lane is not None
        chosen = self.choosing.choose(job, lane, now)
        return None if chosen is None else chosen.member.name

    def reserve(self, job: Job, now: float) -> float | None:
        lane = self.queue.lane_of(job)
        assert lane is not None
        return self.choosing.reserve(job, lane, now)


@pytest.fixture
def yard() -> Yard:
    return Yard()


@pytest.mark.fault("3.32")
def test_small_jobs_stop_passing_a_big_one_once_it_has_waited_long(yard: Yard) -> None:
    box = yard.worker("box")
    box.promise(a_job("running", ask=Ask(cpus=4)))
    big, small = yard.job("big", BIG), yard.job("small", Ask(cpus=1))
    assert yard.reserve(big, 159.0) == 160.0
    assert yard.goes_to(small) == "box"
    assert yard.reserve(big, 160.0) is None
    assert yard.goes_to(small) is None
    assert "keeps what it has" in yard.choosing.explain(small, 160.0).message
    assert yard.goes_to(yard.job("tiny")) == "box", "it uses none of what is scarce"
    box.settle("running")
    assert yard.goes_to(big) == "box"
    yard.choosing.placed(big, box)
    assert box.reserved is None


@pytest.mark.parametrize("end", ["drain", "leave", "cancel", "outrank"])
def test_a_reservation_ends_with_what_it_was_for(yard: Yard, end: str) -> None:
    box = yard.worker("box")
    big = yard.job("big", BIG)
    box.promise(a_job("running", ask=Ask(cpus=4)))
    yard.reserve(big, 200.0)
    assert box.reserved is not None
    if end == "drain":
        box.leaving = True
    elif end == "leave":
        box.state = "offline"
    elif end == "cancel":
        yard.queue.remove("big")
    else:
        urgent = yard.job("urgent", Ask(cpus=1), priority=1)
        assert yard.goes_to(urgent) == "box"
        yard.choosing.placed(urgent, box)
    yard.choosing.review()
    assert box.reserved is None


def test_a_worker_has_one_reservation_and_a_higher_priority_takes_it(yard: Yard) -> None:
    box = yard.worker("box")
    first, second = yard.job("first", BIG), yard.job("second", Ask(cpus=7))
    urgent = yard.job("urgent", Ask(cpus=6), priority=1)
    for job in (first, second):
        yard.reserve(job, 200.0)
    assert box.reserved is not None
    assert box.reserved.job == "first"
    yard.reserve(urgent, 200.0)
    assert box.reserved.job == "urgent"
    yard.choosing.placed(first, box)
    assert box.reserved.job == "urgent", "that of another job stays"


def test_a_change_of_a_worker_is_seen_at_once(yard: Yard) -> None:
    box = yard.worker("box", cpus=4)
    big = yard.job("big", BIG)
    assert yard.goes_to(big) is None
    box.inventory = protocol.Inventory(cpus=8)
    assert yard.goes_to(big) == "box"
    box.parallel = 0
    assert yard.goes_to(big) is None


def test_a_job_falls_back_only_when_no_worker_could_ever_take_it(yard: Yard) -> None:
    yard.worker("server")
    prefers = yard.job("j", Ask(labels=("gpu",), policy="prefer"))
    assert yard.goes_to(prefers) == "server"
    box = yard.worker("box", parallel=1)
    box.labels = frozenset({"gpu"})
    box.promise(a_job("running"))
    assert yard.goes_to(prefers) is None
    box.state = "lost"
    assert yard.goes_to(prefers) is None
    box.state = "offline"
    assert yard.goes_to(prefers) == "server"
