"""Where a job may run, and what people are told when it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.model import Ask
from farhand.placement import Candidate
from tests.unit.placements import GPU, PREFER_GPU, SERVER, place, worker


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
        (replace(worker("a", "gpu", draining=True), trouble="its disk is full"), "trouble", False),
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
