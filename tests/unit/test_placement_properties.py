"""What holds of every placement, whatever is asked for and whoever is there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farhand.model import Ask
from farhand.placement import Candidate, Wanted, choose, refuse_ever
from farhand.resources import Amounts, Capacity
from tests.unit.placements import place

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
