"""Every word of the list of options is taken by the decorators, and arrives where it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import farhand
from farhand import Service, cron, exponential, flow, sdk, task
from farhand.errors import NotSupported, Usage
from farhand.sdk.options import TAKEN, Common, FlowOptions, Options, TaskOptions

PAGE = Path(__file__).resolve().parents[3] / "docs" / "flows.md"


def hook(summary: dict[str, Any]) -> None: ...


EXAMPLES: list[tuple[str, Any, str, Any]] = [
    ("name", "night", "name", "night"),
    ("tags", ["a", "b"], "options.tags", ["a", "b"]),
    ("retries", 2, "options.retries", 2),
    ("retry_delay", "30s", "options.retry_delay.seconds", [30.0]),
    ("retry_delay", [1, 10], "options.retry_delay.seconds", [1.0, 10.0]),
    ("retry_delay", exponential(1, cap=60, jitter=0.5), "options.retry_delay.cap_s", 60.0),
    ("retry_on", ValueError, "options.retry_on", ...),
    ("timeout", "2h", "options.timeout_s", 7200.0),
    ("silence_timeout", 5, "options.silence_timeout_s", 5.0),
    ("runs_on", "worker", "options.runs_on", "worker"),
    ("device", "gpu", "options.labels", ["gpu"]),
    ("cpus", 2, "options.cpus", 2),
    ("gpus", 0, "options.gpus", 0),
    ("ram", "1G", "options.ram_mb", 1024),
    ("flavor", "big", "options.flavor", "big"),
    ("secrets", "smtp", "options.secrets", ["smtp"]),
    ("on_completed", hook, "hooks_of", "completed"),
    ("on_failed", hook, "hooks_of", "failed"),
    ("on_cancelled", hook, "hooks_of", "cancelled"),
]
"""Option, what is given, where that is found, and as what. Those of both decorators."""

OF_PLACED_TASKS: list[tuple[str, Any, str, Any]] = [
    ("priority", 5, "options.priority", 5),
    ("isolated", True, "options.isolated", True),
    ("device_policy", "prefer", "options.policy", "prefer"),
    ("strict_lease", True, "options.strict_lease", True),
    ("crash_retries", 0, "options.crash_retries", 0),
]
OF_TASKS: list[tuple[str, Any, str, Any]] = [
    ("process", True, "options.process", True),
    ("durable", True, "options.durable", True),
    ("requires", [], "member.requires", ()),
    ("provides", "x", "member.provides", ...),
]
OF_FLOWS: list[tuple[str, Any, str, Any]] = [
    ("description", "Every night.", "description", "Every night."),
    ("run_name", "{n} sheep", "run_name", "{n} sheep"),
    ("max_concurrent", 1, "options.max_concurrent", 1),
    ("on_crashed", hook, "hooks_of", "crashed"),
    ("schedule", cron("0 3 * * *"), "schedules", ...),
    ("services", [Service("llm", ["serve"], port=8000)], "services", ...),
]


def check(step: Any, where: str, expected: Any) -> None:
    found: Any = step
    for name in where.split("."):
        found = getattr(found, name)
    if where == "hooks_of":
        assert found(expected) == [hook]
    elif expected is ...:
        assert found
    else:
        assert (list(found) if isinstance(expected, list) else found) == expected


@pytest.mark.parametrize(("option", "given", "where", "expected"), EXAMPLES + OF_PLACED_TASKS + OF_FLOWS)
def test_a_flow_takes(option: str, given: Any, where: str, expected: Any) -> None:
    check(flow(**{option: given})(lambda: None), where, expected)


@pytest.mark.parametrize(("option", "given", "where", "expected"), EXAMPLES + OF_TASKS)
def test_a_task_takes(option: str, given: Any, where: str, expected: Any) -> None:
    check(task(**{option: given})(lambda: None), where, expected)


@pytest.mark.parametrize(("option", "given", "where", "expected"), OF_PLACED_TASKS)
def test_a_task_with_a_machine_of_its_own_takes(option: str, given: Any, where: str, expected: Any) -> None:
    check(task(**{option: given, "device": "gpu"})(lambda: None), where, expected)


@pytest.mark.parametrize("option", [example[0] for example in OF_PLACED_TASKS])
def test_a_task_without_a_machine_of_its_own_is_refused_what_would_mean_nothing(option: str) -> None:
    given = {example[0]: example[1] for example in OF_PLACED_TASKS}[option]
    with pytest.raises(Usage, match=f"{option}=….*ask for a machine"):
        task(**{option: given})


def test_the_examples_are_the_whole_list() -> None:
    common = {example[0] for example in EXAMPLES + OF_PLACED_TASKS}
    assert common == set(Common.__annotations__)
    assert common | {example[0] for example in OF_TASKS} == set(TaskOptions.__annotations__)
    assert common | {example[0] for example in OF_FLOWS} == set(FlowOptions.__annotations__)


def test_nothing_that_is_read_is_missing_from_the_list() -> None:
    names: set[str] = set()

    class Asked(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            names.add(name)
            return default

    Options(Asked())
    assert names <= TAKEN["flow"] | TAKEN["task"]


def test_the_page_of_options_has_each_of_them() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    listed = " ".join(row.split("|")[1] for row in rows)
    assert [name for name in sorted(TAKEN["flow"] | TAKEN["task"]) if f"`{name}`" not in listed] == []


@pytest.mark.parametrize("decorator", [flow, task])
def test_what_comes_later_is_refused_and_so_is_what_never_will(decorator: Any) -> None:
    with pytest.raises(NotSupported, match="cache"):
        decorator(cache=True)
    with pytest.raises(TypeError, match="colour"):
        decorator(colour="red")


def test_a_task_has_no_schedule_and_a_flow_no_process() -> None:
    for decorator, options in (
        (task, {"schedule": []}),
        (task, {"max_concurrent": 1}),
        (flow, {"process": True}),
    ):
        with pytest.raises(TypeError):
            decorator(**options)


def test_what_the_sdk_exports_is_what_farhand_exports() -> None:
    scope: dict[str, Any] = {}
    exec("from farhand import *", scope)
    assert set(sdk.__all__) <= set(scope)
    assert all(getattr(farhand, name) is getattr(sdk, name) for name in sdk.__all__)
    with pytest.raises(AttributeError):
        farhand.nothing  # noqa: B018 - its absence is the point
