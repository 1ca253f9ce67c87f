from __future__ import annotations

import pytest

from farhand.model import Ask
from farhand.provisioning import Demand, Shape, Standing, covers, smallest, wanted

SMALL = Shape("hpc", "small", ("gpu",), cpus=4, gpus=1, ram_mb=16_000)
LARGE = Shape("hpc", "large", ("gpu", "a100"), cpus=16, gpus=4, ram_mb=64_000, max_outstanding=3)
PLAIN = Shape("hpc", "plain", ("batch",))
ALL = (LARGE, SMALL, PLAIN)
GPU = Ask(labels=("gpu",))


@pytest.mark.parametrize(
    ("shape", "ask", "does"),
    [
        (SMALL, GPU, True),
        (SMALL, Ask(labels=("gpu",), gpus=1, cpus=4, ram_mb=16_000), True),
        (SMALL, Ask(labels=("gpu",), gpus=2), False),
        (SMALL, Ask(labels=("gpu", "a100")), False),
        (SMALL, Ask(), True),
        (SMALL, Ask(labels=("gpu",), runs_on="worker"), True),
        (SMALL, Ask(labels=("gpu",), runs_on="server"), False),
        (SMALL, Ask(runs_on="mill"), False),
        (PLAIN, Ask(labels=("batch",)), True),
        (PLAIN, Ask(labels=("batch",), gpus=0), True),
        (PLAIN, Ask(labels=("batch",), cpus=1), False),
    ],
)
def test_a_profile_covers_what_it_names_and_no_more(shape: Shape, ask: Ask, does: bool) -> None:
    assert covers(shape, ask) is does


def test_the_smallest_that_covers_is_taken_wherever_it_stands_in_the_list() -> None:
    assert smallest(ALL, GPU) == SMALL
    assert smallest(ALL, Ask(gpus=2)) == LARGE
    assert smallest(ALL, GPU, {SMALL.key}) == LARGE


@pytest.mark.fault("4.10")
def test_a_label_that_no_profile_has_is_asked_of_nobody() -> None:
    assert smallest(ALL, Ask(labels=("tpu",))) is None
    assert wanted([Demand(Ask(labels=("tpu",)), 5)], ALL, {}) == []


@pytest.mark.fault("4.11")
@pytest.mark.parametrize(
    ("demands", "standing", "expected"),
    [
        ([], {}, []),
        ([Demand(GPU, 2)], {}, [SMALL]),
        ([Demand(GPU), Demand(Ask(labels=("gpu",), cpus=2))], {}, [SMALL]),
        ([Demand(GPU, 2)], {SMALL.key: Standing(awaited=1)}, []),
        ([Demand(GPU, 2)], {SMALL.key: Standing(attached=1)}, []),
        ([Demand(Ask(gpus=2), 1)], {}, [LARGE]),
        ([Demand(Ask(gpus=2), 2)], {}, [LARGE, LARGE]),
        ([Demand(Ask(gpus=2), 9)], {}, [LARGE] * 3),
        ([Demand(Ask(gpus=2), 9)], {LARGE.key: Standing(awaited=1, attached=1)}, [LARGE]),
        ([Demand(Ask(gpus=2), 1)], {LARGE.key: Standing(awaited=1)}, []),
        ([Demand(GPU), Demand(Ask(gpus=2))], {}, [LARGE, SMALL]),
    ],
)
def test_so_many_machines_are_asked_for(
    demands: list[Demand], standing: dict[tuple[str, str], Standing], expected: list[Shape]
) -> None:
    """Two jobs that want one profile ask for one machine; a deeper queue for more, where more are allowed."""
    assert wanted(demands, ALL, standing) == expected


def test_jobs_share_a_machine_by_its_slots() -> None:
    shape = Shape("hpc", "wide", ("gpu",), slots=4, max_outstanding=9)
    assert wanted([Demand(GPU, 9)], (shape,), {}) == [shape] * 3
