"""Where a job may run that asks for cores, GPUs or memory, and what is said of what is short."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.model import Ask
from farhand.placement import Candidate, Wanted, choose, refuse_ever
from farhand.resources import Amounts
from tests.unit.placements import PREFER_GPU, SERVER, place, sized, worker


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
