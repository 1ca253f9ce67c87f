"""What the server knows of its workers between two looks at the store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.engine.fleet import Fleet
from farhand.engine.member import AWAITED, LOST, OFFLINE, ONLINE
from farhand.model import Ask, JobSettings
from farhand_worker import protocol
from tests.unit.engine.records import FakeLink, a_job


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(protocol.Times())


def test_a_member_is_made_once(fleet: Fleet) -> None:
    assert fleet.get("box") is None
    box = fleet.member("box")
    assert fleet.member("box") is box
    assert fleet.get("box") is box
    assert list(fleet) == [box]


def test_a_held_lease_takes_a_slot_until_it_is_released(fleet: Fleet) -> None:
    box = fleet.member("box")
    job = a_job("j1")
    fleet.hold(box, job, 7)
    box.parallel = 4
    box.promise(a_job("j2"))
    assert box.busy == 2
    held = fleet.holder("j1")
    assert held is not None
    assert held[0] is box
    assert fleet.release("j1", 7) is box
    assert box.busy == 1
    box.settle("j2")
    assert box.busy == 0
    assert fleet.holder("j1") is None


def test_a_lease_that_is_not_the_one_held_releases_nothing(fleet: Fleet) -> None:
    box = fleet.member("box")
    fleet.hold(box, a_job("j1"), 7)
    assert fleet.release("j1", 6) is None
    assert fleet.release("another", 7) is None
    assert box.busy == 1


def test_a_job_held_again_elsewhere_leaves_no_slot_behind(fleet: Fleet) -> None:
    """B063: slots are live leases, and a lease that was followed by another is not one."""
    first, second = fleet.member("first"), fleet.member("second")
    fleet.hold(first, a_job("j1"), 7)
    fleet.hold(second, a_job("j1"), 8)
    assert (first.busy, second.busy) == (0, 1)
    fleet.hold(second, a_job("j1"), 8)
    assert second.busy == 1


def test_a_strict_job_is_known_by_its_settings(fleet: Fleet) -> None:
    box = fleet.member("box")
    fleet.hold(box, a_job("j1", settings=JobSettings(strict_lease=True)), 7)
    assert box.holdings[7].strict


@pytest.mark.parametrize(
    ("state", "connected", "shown"),
    [
        (ONLINE, True, "online"),
        (ONLINE, False, "lost"),
        (LOST, True, "lost"),
        (AWAITED, False, "lost"),
        (AWAITED, True, "lost"),
        (OFFLINE, False, "offline"),
    ],
)
def test_placement_sees_a_worker_without_a_welcomed_session_as_lost(
    fleet: Fleet, state: str, connected: bool, shown: str
) -> None:
    box = fleet.member("box")
    box.state, box.parallel, box.labels = state, 4, frozenset({"gpu"})
    box.link = FakeLink() if connected else None
    fleet.hold(box, a_job("j1"), 7)
    candidate = box.candidate
    assert (candidate.state, candidate.in_use.slots, candidate.room) == (shown, 1, 3)
    assert candidate.labels == {"gpu"}


def test_workers_that_are_offline_are_no_candidates(fleet: Fleet) -> None:
    """B012: a ghost is never counted as capacity."""
    fleet.member("gone").state = OFFLINE
    fleet.member("here").state = ONLINE
    assert [candidate.name for candidate in fleet.candidates()] == ["here"]


def test_the_holder_is_told_under_its_lease_when_it_is_connected(fleet: Fleet) -> None:
    box, link = fleet.member("box"), FakeLink()
    fleet.hold(box, a_job("j1"), 7)
    fleet.send_to_holder("j1", lambda lease: protocol.Cancel("j1", lease))
    box.link = link
    fleet.send_to_holder("j1", lambda lease: protocol.Cancel("j1", lease))
    fleet.send_to_holder("nobody's", lambda lease: protocol.Cancel("nobody's", lease))
    assert link.sent == [protocol.Cancel("j1", 7)]


def test_a_busy_worker_is_looked_at_again_once_something_happens_there(fleet: Fleet) -> None:
    def with_room() -> list[str]:
        return [member.name for member in fleet.with_room()]

    box, other = fleet.member("box"), fleet.member("other")
    assert with_room() == []
    box.parallel, box.state, box.link = 1, ONLINE, FakeLink()
    assert with_room() == ["box"]
    fleet.hold(box, a_job("j1"), 7)
    assert with_room() == []
    assert fleet._stirred == set()
    box.part_with(7)
    assert with_room() == ["box"]
    box.keep(7)
    assert with_room() == []
    fleet.release("j1", 7)
    assert with_room() == ["box"]
    box.drained_by = "somebody"
    assert with_room() == []
    other.parallel, other.state, other.link = 1, ONLINE, FakeLink()
    assert with_room() == ["other"]
    fleet.forget("other")
    assert with_room() == []


def test_those_below_a_job_see_it_as_it_is_now(fleet: Fleet) -> None:
    box = fleet.member("box")
    parent = a_job("p", lease=1, ask=Ask(ram_mb=100))
    fleet.hold(box, parent, 1)
    call = a_job("c", kind="call", parent_job="p")
    (kin,) = fleet.kin_of(call)
    assert (kin.worker, kin.blocked, kin.keeps.gpus) == ("box", False, 0)
    assert fleet.kin_of(call)[0] is kin, "nothing has changed"
    fleet.changed(replace(parent, blocked="blocked"))
    (blocked,) = fleet.kin_of(call)
    assert (blocked.blocked, blocked.keeps.ram_mb) == (True, 100)
    box.parallel = 4
    assert fleet.kin_of(call)[0] is not blocked, "what the worker lends may count otherwise"
