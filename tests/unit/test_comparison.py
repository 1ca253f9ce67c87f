"""Runs side by side, as rows of facts."""

from __future__ import annotations

from typing import Any

from farhand.comparison import ABSENT, Fact, comparison, defaults_of


def run(**changes: Any) -> dict[str, Any]:
    usual = {
        "flow": "train",
        "state": "completed",
        "worker": None,
        "fingerprint": "sha256:f",
        "started_at": 1.0,
        "ended_at": 3.0,
        "params": {},
        "defaults": {},
        "attempts": [],
        "result": None,
        "result_form": None,
        "metrics": [],
    }
    return {**usual, **changes}


def rows(*runs: dict[str, Any]) -> dict[tuple[str, str], Fact]:
    return {(fact.group, fact.name): fact for fact in comparison(runs)}


def test_every_name_that_any_run_has_is_a_row_and_what_is_missing_is_absent() -> None:
    found = rows(run(params={"lr": 0.1}), run(params={"seed": 1}))
    assert found["parameters", "lr"].values == (0.1, ABSENT)
    assert found["parameters", "seed"].values == (ABSENT, 1)


def test_a_result_of_names_is_a_row_each_and_any_other_is_one_row() -> None:
    named = rows(run(result={"a": 1}, result_form="json"), run(result={"a": 2}, result_form="json"))
    assert named["result", "a"].values == (1, 2)
    plain = rows(run(result=7, result_form="json"), run())
    assert plain["result", ""].values == (7, ABSENT)


def test_series_are_told_by_their_ends_and_times_by_their_length() -> None:
    loss = {"name": "loss", "last": 0.5, "low": 0.1, "high": 1.0}
    found = rows(run(metrics=[loss]), run(ended_at=None))
    assert found["metrics", "loss min"].values == (0.1, ABSENT)
    assert found["run", "took"].values == (2.0, ABSENT)


def test_what_differs_is_known() -> None:
    found = rows(run(params={"lr": 1}), run(params={"lr": 1}, state="failed"), run(params={"lr": 1}))
    assert not found["parameters", "lr"].differs
    assert found["run", "state"].differs
    assert not found["run", "worker"].differs


def test_a_parameter_that_was_not_given_is_told_by_its_default() -> None:
    found = rows(
        run(params={"lr": 0.5}, defaults={"lr": 0.1, "seed": 1}), run(defaults={"lr": 0.1, "seed": 1})
    )
    assert found["parameters", "lr"].values == (0.5, 0.1)
    assert found["parameters", "seed"].values == (1, 1)


def test_defaults_are_those_of_the_code_that_ran() -> None:
    schema = {"properties": {"lr": {"type": "number", "default": 0.1}, "data": {"type": "string"}}}
    flow = {"fingerprint": "sha256:f", "schema": schema}
    assert defaults_of(run(), flow) == {"lr": 0.1}
    assert defaults_of(run(fingerprint="sha256:older"), flow) == {}
    assert defaults_of(run(fingerprint=""), {**flow, "fingerprint": ""}) == {}
    assert defaults_of(run(), None) == {}


def test_what_was_installed_is_told_of_the_last_attempt_that_knows() -> None:
    before = {"python": "3.11.7", "environment": "sha256:a"}
    after = {"python": "3.12.1", "environment": "sha256:b"}
    never_started = {"python": "", "environment": ""}
    found = rows(run(attempts=[before, after, never_started]), run(attempts=[before]), run())
    assert found["run", "python"].values == ("3.12.1", "3.11.7", ABSENT)
    assert found["run", "environment"].values == ("sha256:b", "sha256:a", ABSENT)
    assert found["run", "environment"].differs
