"""Who may run where by what was before: reservations, workers of earlier, runs that wait for their calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.model import Ask
from farhand.placement import Candidate, Kin, Reservation, Wanted, choose, refuse_ever, soonest
from farhand.placement import place as place_wanted
from farhand.resources import Amounts
from tests.unit.placements import SERVER, sized, worker


@pytest.mark.parametrize(
    ("earlier", "now", "chosen"),
    [
        pytest.param(worker("b"), 9.0, "b", id="goes back where it was"),
        pytest.param(worker("b", room=0), 9.0, None, id="waits for it while it is busy"),
        pytest.param(worker("b", room=0), 10.0, "server", id="for ten seconds"),
        pytest.param(worker("b", state="lost"), 9.0, "server", id="not when it is lost"),
        pytest.param(worker("b", draining=True), 9.0, "server", id="not when it drains"),
        pytest.param(worker("b", parallel=0, room=0), 9.0, "server", id="not when it never could"),
    ],
)
def test_a_job_that_comes_back(earlier: Candidate, now: float, chosen: str | None) -> None:
    wanted = Wanted(Ask(), earlier="b", earlier_until=10.0)
    candidates = [SERVER, worker("a", room=4), earlier]
    placement = place_wanted(wanted, candidates, now)
    assert placement.worker == chosen
    quick = choose(wanted, [c for c in candidates if refuse_ever(Ask(), c) is None], now)
    assert (None if quick is None else quick.name) == chosen
    if chosen is None:
        assert {r.worker: r.code for r in placement.refusals} == {
            "server": "prefers_earlier",
            "a": "prefers_earlier",
            "b": "no_slot",
        }


BIG = Reservation("big", 0, Amounts(1, 8, 0, 0))


@pytest.mark.fault("3.32")
@pytest.mark.parametrize(
    ("wanted", "used", "passes"),
    [
        pytest.param(Wanted(Ask(cpus=1), "small"), Amounts(1, 4), False, id="it uses what is scarce"),
        pytest.param(Wanted(Ask(), "small"), Amounts(1, 4), True, id="it uses none of what is scarce"),
        pytest.param(Wanted(Ask(), "small"), Amounts(3, 4), False, id="the last slot is scarce"),
        pytest.param(Wanted(Ask(cpus=1), "small"), Amounts(1, 0), False, id="it would make it scarce"),
        pytest.param(Wanted(Ask(cpus=1), "urgent", priority=1), Amounts(1, 4), True, id="a higher priority"),
        pytest.param(Wanted(Ask(cpus=8), "big"), Amounts(1, 0), True, id="the job itself"),
        pytest.param(
            Wanted(Ask(cpus=1), "child", depth=1, kin=(Kin("p", "r", "f", "a", False),)),
            Amounts(1, 4),
            True,
            id="a descendant of what runs there",
        ),
        pytest.param(
            Wanted(Ask(cpus=1), "child", depth=1, kin=(Kin("p", "r", "f", "b", False),)),
            Amounts(1, 4),
            False,
            id="but not of what runs elsewhere",
        ),
    ],
)
def test_beside_a_job_that_has_waited_long(wanted: Wanted, used: Amounts, passes: bool) -> None:
    reserved = replace(sized("a", used=used), reserved=BIG)
    placement = place_wanted(wanted, [reserved])
    assert (placement.worker == "a") is passes
    if not passes:
        assert placement.refusals[0].code == "reserved"


@pytest.mark.parametrize(
    ("candidates", "name"),
    [
        pytest.param([sized("a", used=Amounts(4, 8)), sized("b", used=Amounts(1, 2))], "b", id="least short"),
        pytest.param([sized("a", cpus=4), sized("b", used=Amounts(4, 8))], "b", id="one that could ever"),
        pytest.param([replace(sized("a"), draining=True)], None, id="not one that drains"),
        pytest.param([replace(sized("a"), state="lost")], None, id="not one that is lost"),
        pytest.param([replace(sized("a"), reserved=BIG)], None, id="one reservation a worker"),
        pytest.param(
            [replace(sized("a"), reserved=replace(BIG, priority=-1))], "a", id="a lower one gives way"
        ),
    ],
)
def test_it_reserves_the_worker_where_it_fits_soonest(candidates: list[Candidate], name: str | None) -> None:
    assert soonest(Wanted(Ask(cpus=8), "job"), candidates) == name


def kin(worker: str = "a", blocked: bool = True, **keeps: int) -> Kin:
    return Kin("parent-job", "run1", "train", worker, blocked, Amounts(**keeps))


@pytest.mark.fault("3.30")
def test_a_draining_worker_takes_the_calls_of_what_runs_there_and_nothing_else() -> None:
    draining = worker("a", draining=True)
    assert place_wanted(Wanted(Ask(), depth=1, kin=(kin("a"),)), [draining]).worker == "a"
    assert place_wanted(Wanted(Ask(), depth=1, kin=(kin("b"),)), [draining]).refusals[0].code == "draining"
    assert place_wanted(Wanted(Ask()), [draining]).worker is None


@pytest.mark.fault("3.29")
@pytest.mark.parametrize(
    ("blocked", "depth", "taken"),
    [
        pytest.param((0,) * 7, 0, True, id="below the bound"),
        pytest.param((0,) * 8, 0, False, id="four for each slot"),
        pytest.param((0,) * 8, 1, True, id="a call of what is blocked"),
        pytest.param((0,) * 4 + (1,) * 4, 0, False, id="blocked calls count for runs"),
        pytest.param((0,) * 8 + (1,) * 8, 1, False, id="calls that block have a bound too"),
        pytest.param((0,) * 8 + (1,) * 8, 2, True, id="what lies deeper than all can end, so it goes"),
    ],
)
def test_new_runs_come_only_while_few_engines_are_blocked(
    blocked: tuple[int, ...], depth: int, taken: bool
) -> None:
    candidate = replace(worker("a", parallel=2, room=2), blocked=blocked)
    placement = place_wanted(Wanted(Ask(), depth=depth), [candidate])
    assert (placement.worker == "a") is taken
    if not taken:
        assert placement.refusals[0].code == "too_many_blocked"


@pytest.mark.fault("3.28")
@pytest.mark.parametrize(
    ("ask", "candidates", "hopeless"),
    [
        pytest.param(Ask(ram_mb=500), [sized("a", used=Amounts(ram_mb=600))], True, id="memory"),
        pytest.param(Ask(gpus=1), [sized("a", gpus=2, used=Amounts(gpus=2))], True, id="a GPU"),
        pytest.param(
            Ask(ram_mb=500), [sized("a", used=Amounts(ram_mb=600)), sized("b")], False, id="elsewhere"
        ),
        pytest.param(
            Ask(ram_mb=500),
            [sized("a", used=Amounts(ram_mb=600)), sized("b", used=Amounts(slots=4))],
            False,
            id="elsewhere, later",
        ),
        pytest.param(Ask(ram_mb=400), [sized("a", used=Amounts(ram_mb=900))], False, id="others hold it too"),
        pytest.param(Ask(cpus=8), [sized("a", used=Amounts(cpus=8))], False, id="cores are given back"),
        pytest.param(Ask(), [sized("a", used=Amounts(slots=4))], False, id="so are slots"),
    ],
)
def test_a_call_that_needs_what_its_own_run_holds(
    ask: Ask, candidates: list[Candidate], hopeless: bool
) -> None:
    parent = kin("a", ram_mb=600, gpus=2)
    placement = place_wanted(Wanted(ask, depth=1, kin=(parent,)), candidates)
    assert placement.hopeless is hopeless
    if hopeless:
        assert "held by train (run1), which waits for this very call" in placement.message
        assert "goes on only after" not in placement.message
    reader = replace(parent, job="reader", name="reads")
    beside = place_wanted(Wanted(ask, depth=1, beside=(reader,)), candidates)
    assert beside.hopeless is hopeless
    if hopeless:
        assert "held by reads (run1), which waits for a stream that goes on only after this" in beside.message
    busy = replace(parent, blocked=False)
    assert not place_wanted(Wanted(ask, depth=1, kin=(busy,)), candidates).hopeless
