from __future__ import annotations

import logging

import pytest

from farhand_worker.allocation import Allocation, allocation, leads


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": " "}, None),
        ({"SLURM_JOB_ID": "7"}, Allocation("7")),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1700000000"}, Allocation("7", 1700000000.0)),
        ({"SLURM_JOB_END_TIME": "1700000000"}, None),
    ],
)
def test_an_allocation_is_known_by_what_slurm_sets(environ: dict[str, str], found: Allocation | None) -> None:
    assert allocation(environ) == found


def test_an_end_that_is_no_moment_is_said_and_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "farhand.worker"):
        assert allocation({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "soon"}) == Allocation("7")
    assert "its end is not known" in caplog.text


def test_a_long_allocation_drains_a_minute_before_it_ends_its_engines() -> None:
    assert leads(3600.0, 10.0) == (80.0, 20.0)


def test_of_a_short_allocation_half_is_for_work() -> None:
    assert leads(40.0, 10.0) == (20.0, 10.0)
