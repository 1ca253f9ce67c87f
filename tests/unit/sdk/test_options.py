"""What a flow or task may ask of a machine, as it is decorated."""

from __future__ import annotations

from typing import Any

import pytest

from farhand import flow, task
from farhand.errors import Usage
from farhand.sdk.sizes import size_mb_of


def ask_of(**given: Any) -> dict[str, Any]:
    return task(**given)(lambda: None).options.ask()


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"cpus": 8}, {"cpus": 8}),
        ({"gpus": 0}, {"gpus": 0}),
        ({"gpus": 2, "device": "gpu"}, {"gpus": 2, "labels": ["gpu"]}),
        ({"ram": 512}, {"ram_mb": 512}),
        ({"ram": "8G"}, {"ram_mb": 8192}),
        ({"ram": "1500K"}, {"ram_mb": 2}),
        ({"flavor": "gpu-small"}, {"flavor": "gpu-small"}),
        ({"runs_on": "worker", "device_policy": "prefer"}, {"runs_on": "worker", "policy": "prefer"}),
    ],
)
def test_a_task_asks_for(given: dict[str, Any], asked: dict[str, Any]) -> None:
    nothing = task(lambda: None).options.ask()
    assert ask_of(**given) == {**nothing, **asked}
    assert flow(**given)(lambda: None).options.ask() == {**nothing, **asked}


@pytest.mark.parametrize(
    ("given", "placed"),
    [({}, False), ({"cpus": 1}, True), ({"gpus": 0}, True), ({"ram": 1}, True), ({"flavor": "a"}, True)],
)
def test_a_size_makes_a_call_a_job_of_its_own(given: dict[str, Any], placed: bool) -> None:
    assert task(**given)(lambda: None).options.places is placed


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"cpus": 0}, "cpus must be a whole number, at least 1"),
        ({"cpus": 1.5}, "cpus must be a whole number"),
        ({"gpus": -1}, "gpus must be a whole number, at least 0"),
        ({"gpus": True}, "gpus must be a whole number"),
        ({"ram": "much"}, "ram is not a size"),
        ({"ram": 0}, "ram must be at least a megabyte"),
        ({"flavor": "Big One"}, "flavor must be the name of one"),
        ({"device": 3}, "device must be a label such as 'gpu'"),
    ],
)
def test_what_is_no_size_is_refused_with_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Usage, match=sentence):
        task(**given)(lambda: None)


@pytest.mark.parametrize(("decorate", "word"), [(task, "task"), (flow, "flow")])
@pytest.mark.parametrize("what", [type("Fit", (), {}), 3])
def test_what_is_no_function_is_not_decorated(decorate: Any, word: str, what: Any) -> None:
    with pytest.raises(Usage, match=f"@{word} is for functions, and '?(Fit|3)'? is none"):
        decorate(what)


def test_megabytes_are_rounded_up() -> None:
    assert [size_mb_of(size) for size in (1, "1M", "1.5M", "1K")] == [1, 1, 2, 1]
