"""Where a job may run, and what people are told when it may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farhand.model import Ask
from farhand.placement import Candidate, Kin, Placement, Reservation, Wanted, choose, refuse_ever, soonest
from farhand.placement import place as place_wanted
from farhand.resources import NOTHING, Amounts, Capacity

GPU = Ask(labels=("gpu",))
PREFER_GPU = Ask(labels=("gpu",), policy="prefer")


def worker(
    name: str,
    *labels: str,
    room: int = 1,
    parallel: int = 4,
    state: str = "online",
    draining: bool = False,
) -> Candidate:
    in_use = Amounts(slots=parallel - room)
    return Candidate(name, frozenset(labels), Capacity(parallel), in_use, state, draining)


def place(ask: Ask, candidates: list[Candidate]) -> Placement:
    return place_wanted(Wanted(ask), candidates)


SERVER = worker("server")


@pytest.mark.parametrize(
    ("ask", "candidates", "chosen"),
    [
        pytest.param(Ask(), [worker("a", room=3), SERVER], "server", id="the server first without a device"),
        pytest.param(
            Ask(), [worker("a", room=1), worker("b", room=3)], "b", id="else the worker with most room"
        ),
        pytest.param(Ask(), [worker("server", room=0), worker("a")], "a", id="a full server is passed over"),
        pytest.param(
            GPU,
            [worker("server", "gpu", room=1), worker("a", "gpu", room=2)],
            "a",
            id="with a device the server has no precedence",
        ),
        pytest.param(GPU, [SERVER, worker("a", "gpu")], "a", id="the label is needed"),
        pytest.param(
            Ask(labels=("gpu", "cuda12")),
            [worker("a", "gpu", room=4), worker("b", "gpu", "cuda12")],
            "b",
            id="all labels are needed",
        ),
        pytest.param(Ask(runs_on="server"), [worker("a", room=4), SERVER], "server", id="runs_on server"),
        pytest.param(Ask(runs_on="worker"), [SERVER, worker("a")], "a", id="runs_on worker"),
        pytest.param(Ask(runs_on="b"), [SERVER, worker("a", room=4), worker("b")], "b", id="runs_on a name"),
        pytest.param(
            Ask(runs_on="b"), [SERVER, worker("b", room=0)], None, id="a named worker is waited for"
        ),
        pytest.param(Ask(), [worker("a", state="lost")], None, id="a lost worker takes nothing"),
        pytest.param(Ask(), [worker("a", draining=True)], None, id="a draining worker takes nothing"),
        pytest.param(Ask(), [], None, id="nobody there"),
    ],
)
def test_a_job_goes_to(ask: Ask, candidates: list[Candidate], chosen: str | None) -> None:
    assert place(ask, candidates).worker == chosen


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        pytest.param([SERVER], "server", id="falls back when nobody else is attached"),
        pytest.param([SERVER, worker("a")], "server", id="falls back when no worker could ever take it"),
        pytest.param([SERVER, worker("a", "gpu", room=0)], None, id="busy means wait"),
        pytest.param([SERVER, worker("a", "gpu", state="lost")], None, id="a blip does not fall back"),
        pytest.param([SERVER, worker("a", "gpu", draining=True)], None, id="a drain does not fall back"),
        pytest.param(
            [SERVER, worker("a", "gpu", room=0, parallel=0)],
            "server",
            id="a worker without slots never could",
        ),
        pytest.param([worker("server", room=0), worker("a")], None, id="a busy server is waited for"),
        pytest.param([worker("a")], None, id="without a server there is nothing to fall back to"),
        pytest.param([SERVER, worker("a", "gpu")], "a", id="the preferred worker when it is free"),
    ],
)
def test_a_job_that_prefers_a_gpu(candidates: list[Candidate], chosen: str | None) -> None:
    assert place(PREFER_GPU, candidates).worker == chosen


def test_a_job_that_requires_a_label_never_falls_back() -> None:
    assert place(GPU, [SERVER, worker("a")]).worker is None


def test_a_job_asked_for_elsewhere_never_falls_back_to_the_server() -> None:
    ask = Ask(labels=("gpu",), policy="prefer", runs_on="worker")
    assert place(ask, [SERVER, worker("a")]).worker is None


def test_a_label_nobody_has_is_named_with_who_was_looked_at() -> None:
    """B060: an impossible ask waits, and says which label is missing on whom."""
    placement = place(Ask(labels=("gpuu",)), [SERVER, worker("box", "gpu")])
    assert placement.worker is None
    assert placement.message == (
        "waits for label gpuu; no attached worker could ever take it: "
        "server has no label gpuu; box has no label gpuu"
    )
    assert {(r.worker, r.code, r.for_good) for r in placement.refusals} == {
        ("server", "label_missing", True),
        ("box", "label_missing", True),
    }


def test_only_the_missing_one_of_several_labels_is_named() -> None:
    placement = place(Ask(labels=("gpu", "cuda12")), [worker("box", "gpu")])
    assert placement.refusals[0].message == "has no label cuda12"


def test_without_any_worker_the_sentence_says_so() -> None:
    assert place(GPU, []).message == "waits for label gpu; no worker is attached"
    assert place(Ask(runs_on="b"), []).message == "waits for a free slot on b; no worker is attached"


@pytest.mark.parametrize(
    ("runs_on", "message"),
    [
        ("worker", "server is the server itself, and it asks for another machine"),
        ("server", "a is not the server itself"),
        ("b", "server is not b; a is not b"),
    ],
)
def test_a_place_that_was_not_asked_for_is_named_as_what_it_is(runs_on: str, message: str) -> None:
    candidates = [replace(SERVER, draining=True), worker("a", draining=True)]
    assert message in place(Ask(runs_on=runs_on), candidates).message


def test_a_busy_worker_is_a_reason_to_wait_with_numbers() -> None:
    placement = place(Ask(), [worker("a", room=0, parallel=3)])
    assert placement.message == "waits for a free slot: a has 3 of 3 slots taken"
    assert not placement.refusals[0].for_good


@pytest.mark.parametrize(
    ("candidate", "code", "for_good"),
    [
        (worker("a", "gpu", state="lost"), "lost", False),
        (worker("a", "gpu", state="offline"), "offline", True),
        (worker("a", "gpu", draining=True), "draining", False),
        (worker("a", "gpu", room=0, parallel=0), "no_slots", True),
        (worker("a", "gpu", room=0), "no_slot", False),
        (worker("a", state="lost", room=0), "label_missing", True),
    ],
)
def test_the_first_reason_against_a_worker_is_the_one_that_lasts(
    candidate: Candidate, code: str, for_good: bool
) -> None:
    (refusal,) = place(GPU, [candidate]).refusals
    assert (refusal.code, refusal.for_good) == (code, for_good)


def test_after_a_fall_back_the_server_is_named_for_what_it_lacks_now() -> None:
    placement = place(PREFER_GPU, [worker("server", room=0), worker("a")])
    assert [(r.worker, r.code) for r in placement.refusals] == [("a", "label_missing"), ("server", "no_slot")]


def test_a_long_list_of_workers_is_cut_in_the_sentence_but_not_in_the_reasons() -> None:
    placement = place(GPU, [worker(f"w{i}") for i in range(20)])
    assert placement.message.count("has no label") == 8
    assert len(placement.refusals) == 20


# ---------------------------------------------------------------- sizes


def sized(name: str, *labels: str, used: Amounts = NOTHING, slots: int = 4, **amounts: Any) -> Candidate:
    capacity = Capacity(slots, **{"cpus": 8, "gpus": 2, "ram_mb": 1000, **amounts})
    return Candidate(name, frozenset(labels), capacity, used)


@pytest.mark.parametrize(
    ("ask", "candidates", "chosen"),
    [
        pytest.param(Ask(cpus=8), [sized("a"), sized("b", cpus=4)], "a", id="who has the cores"),
        pytest.param(Ask(gpus=2), [sized("a", gpus=1), sized("b")], "b", id="who has the GPUs"),
        pytest.param(Ask(gpus=0), [sized("a", gpus=0)], "a", id="none of the GPUs are needed"),
        pytest.param(
            Ask(ram_mb=900), [sized("a", used=Amounts(ram_mb=200)), sized("b")], "b", id="free memory"
        ),
        pytest.param(
            Ask(cpus=64, gpus=9), [sized("a", cpus=None, gpus=None)], "a", id="unknown refuses nothing"
        ),
        pytest.param(
            Ask(cpus=8), [sized("a", cpus=None), sized("b", cpus=4)], "a", id="unknown beside too small"
        ),
        pytest.param(Ask(cpus=9), [sized("a"), sized("b")], None, id="an ask is never clamped"),
        pytest.param(Ask(cpus=4), [sized("a", used=Amounts(slots=4))], None, id="cores without a slot"),
        pytest.param(
            Ask(cpus=1), [sized("server"), sized("a", slots=9)], "server", id="no device: server first"
        ),
        pytest.param(Ask(gpus=1), [sized("server"), sized("a", slots=9)], "a", id="a GPU is a device"),
        pytest.param(
            Ask(runs_on="worker"),
            [sized("a", used=Amounts(cpus=4)), sized("b", used=Amounts(cpus=2))],
            "b",
            id="as many slots: more cores",
        ),
    ],
)
def test_a_job_of_a_size_goes_to(ask: Ask, candidates: list[Candidate], chosen: str | None) -> None:
    assert place(ask, candidates).worker == chosen
    able = [candidate for candidate in candidates if refuse_ever(ask, candidate) is None]
    quick = choose(Wanted(ask), able)
    assert (None if quick is None else quick.name) == chosen


@pytest.mark.fault("3.33")
def test_an_ask_larger_than_every_machine_waits_and_says_so_with_numbers() -> None:
    placement = place(Ask(cpus=16, ram_mb=2000), [sized("a"), sized("b", ram_mb=None)])
    assert placement.message == (
        "waits for 16 cpus, 2000 MB of ram; no attached worker could ever take it: "
        "a has 8 cpus and 1000 MB of ram, it asks for 16 and 2000; b has 8 cpus, it asks for 16"
    )
    assert not placement.hopeless
    assert [r.code for r in placement.refusals] == ["too_small", "too_small"]
    assert placement.refusals[1].numbers == {"cpus_asked": 16, "cpus_free": 8, "cpus_total": 8}


def test_what_is_short_is_told_with_what_is_free() -> None:
    (refusal,) = place(Ask(gpus=2), [sized("a", used=Amounts(slots=1, gpus=1))]).refusals
    assert (refusal.code, refusal.for_good) == ("no_gpus", False)
    assert refusal.message == "has 1 of 2 gpus free, it asks for 2"


@pytest.mark.parametrize(
    ("services", "code", "message"),
    [
        (
            [("llm", Amounts(gpus=1, ram_mb=600))],
            "no_gpus",
            "has 0 of 2 gpus free (the service llm keeps 1 until it is stopped), it asks for 1",
        ),
        (
            [("llm", Amounts(gpus=1)), ("cache", Amounts(ram_mb=9)), ("tiny", Amounts(gpus=1))],
            "no_gpus",
            "has 0 of 2 gpus free (the services llm, tiny keep 2 until they are stopped), it asks for 1",
        ),
        (
            [("db", Amounts(ram_mb=800))],
            "no_ram_mb",
            "has 100 of 1000 MB of ram free (the service db keeps 800 until it is stopped), it asks for 500",
        ),
        ([("small", Amounts(cpus=1))], "no_slot", "has 4 of 4 slots taken"),
    ],
)
def test_the_services_that_keep_what_is_short_are_named_before_all_else(
    services: list[tuple[str, Amounts]], code: str, message: str
) -> None:
    full = sized("a", used=Amounts(slots=4, gpus=2, ram_mb=900))
    (refusal,) = place(Ask(gpus=1, ram_mb=500), [replace(full, services=tuple(services))]).refusals
    assert (refusal.code, refusal.message) == (code, message)


@pytest.mark.parametrize(
    ("candidates", "chosen", "fell_back"),
    [
        pytest.param([sized("server", gpus=0)], "server", True, id="no worker has one"),
        pytest.param([sized("server", gpus=0), sized("a", "gpu", gpus=1)], "server", True, id="too small"),
        pytest.param([sized("server", "gpu")], "server", False, id="the server has what is preferred"),
        pytest.param([sized("server", gpus=0), sized("a", "gpu")], "a", False, id="a worker has it"),
        pytest.param(
            [sized("server", gpus=0, cpus=2)], None, False, id="cores are not a matter of preference"
        ),
    ],
)
def test_a_job_that_prefers_two_gpus(candidates: list[Candidate], chosen: str, fell_back: bool) -> None:
    placement = place(Ask(labels=("gpu",), policy="prefer", gpus=2, cpus=4), candidates)
    assert (placement.worker, placement.fell_back) == (chosen, fell_back)


@pytest.mark.fault("3.34")
@pytest.mark.parametrize("state", ["online", "lost"])
def test_during_a_blip_a_job_that_prefers_a_machine_waits_for_it(state: str) -> None:
    away = worker("a", "gpu", room=0, state=state)
    assert place(PREFER_GPU, [SERVER, away]).worker is None
    assert place(PREFER_GPU, [SERVER, replace(away, state="offline")]).worker == "server"


@pytest.mark.fault("3.31")
def test_when_the_last_fitting_worker_leaves_the_job_waits_and_says_that_none_is_left() -> None:
    fitting, other = sized("big"), sized("small", cpus=2)
    assert place(Ask(cpus=8), [fitting, other]).worker == "big"
    placement = place(Ask(cpus=8), [replace(fitting, state="offline"), other])
    assert placement.message == (
        "waits for 8 cpus; no attached worker could ever take it: "
        "big is offline; small has 2 cpus, it asks for 8"
    )


# ---------------------------------------------------------------- the worker it was on


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


# ---------------------------------------------------------------- reservations

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


# ---------------------------------------------------------------- blocked runs and their calls


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


# ---------------------------------------------------------------- whatever the workers

labels = st.frozensets(st.sampled_from(["gpu", "cuda12", "eu"]))
candidates = st.lists(
    st.builds(
        Candidate,
        name=st.sampled_from(["server", "a", "b", "c"]),
        labels=labels,
        capacity=st.builds(Capacity, slots=st.integers(0, 3), cpus=st.sampled_from([None, 0, 2, 8])),
        in_use=st.builds(Amounts, slots=st.integers(0, 4), cpus=st.integers(0, 8)),
        state=st.sampled_from(["online", "lost", "offline"]),
        draining=st.booleans(),
    ),
    unique_by=lambda candidate: candidate.name,
)
asks = st.builds(
    Ask,
    labels=labels.map(lambda found: tuple(sorted(found))),
    policy=st.sampled_from(["require", "prefer"]),
    runs_on=st.sampled_from(["any", "server", "worker", "a"]),
    cpus=st.sampled_from([None, 1, 4]),
)


@given(asks, candidates)
def test_the_chosen_worker_has_room_and_what_was_asked_or_every_worker_has_a_reason(
    ask: Ask, candidates: list[Candidate]
) -> None:
    placement = place(ask, candidates)
    if placement.worker is None:
        assert {refusal.worker for refusal in placement.refusals} == {c.name for c in candidates}
        assert placement.message.startswith("waits for ")
        return
    chosen = next(c for c in candidates if c.name == placement.worker)
    assert chosen.state == "online"
    assert not chosen.draining
    assert chosen.room > 0
    cpus = chosen.capacity.cpus
    assert cpus is None or (ask.cpus or 0) <= max(0, cpus - chosen.in_use.cpus)
    assert set(ask.labels) <= chosen.labels or (ask.policy == "prefer" and chosen.name == "server")
    assert ask.runs_on in ("any", chosen.name) or (ask.runs_on == "worker" and chosen.name != "server")


@given(asks, candidates)
def test_the_order_of_the_candidates_does_not_decide_whether_a_job_is_placed(
    ask: Ask, candidates: list[Candidate]
) -> None:
    placed = place(ask, candidates).worker is not None
    assert (place(ask, list(reversed(candidates))).worker is not None) == placed


@given(asks, candidates)
def test_the_quick_way_to_choose_chooses_the_same(ask: Ask, candidates: list[Candidate]) -> None:
    placement = place(ask, candidates)
    quick = choose(Wanted(ask), [c for c in candidates if refuse_ever(ask, c) is None])
    assert placement.fell_back or placement.worker == (None if quick is None else quick.name)
