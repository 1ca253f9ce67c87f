"""Hooks of flows that run as scripts."""

from __future__ import annotations

from typing import Any

import pytest

from farhand import flow


def kept() -> tuple[list[dict[str, Any]], Any]:
    seen: list[dict[str, Any]] = []
    return seen, seen.append


def test_a_failed_run_calls_its_hooks_once_with_a_summary() -> None:
    failed, on_failed = kept()
    completed, on_completed = kept()

    @flow(on_failed=[on_failed], on_completed=on_completed)
    def fails(day: str) -> None:
        raise ValueError(f"no {day}")

    with pytest.raises(ValueError, match="no monday"):
        fails("monday")
    [summary] = failed
    assert (summary["flow"], summary["state"], summary["params"]) == ("fails", "failed", {"day": "monday"})
    assert summary["error"]["type"] == "ValueError"
    assert "no monday" in summary["error"]["traceback"]
    assert summary["ended_at"] >= summary["started_at"]
    assert completed == []


def test_retries_come_before_the_end_and_call_nothing() -> None:
    failed, on_failed = kept()
    calls: list[int] = []

    @flow(retries=2, on_failed=on_failed)
    def fails() -> None:
        calls.append(1)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it has no message
        fails()
    assert (len(calls), len(failed)) == (3, 1)


def test_a_completed_run_has_its_result_in_the_summary() -> None:
    completed, on_completed = kept()

    @flow(on_completed=on_completed)
    def works() -> dict[str, int]:
        return {"rows": 3}

    works()
    assert completed[0]["result"] == {"rows": 3}


def test_an_interrupted_run_is_cancelled() -> None:
    cancelled, on_cancelled = kept()

    @flow(on_cancelled=on_cancelled)
    def stops() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stops()
    assert [summary["state"] for summary in cancelled] == ["cancelled"]


def test_a_hook_that_fails_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    seen, also = kept()

    def broken(summary: dict[str, Any]) -> None:
        raise RuntimeError("this hook is broken")

    @flow(on_completed=[broken, also])
    def works() -> int:
        return 1

    assert works() == 1
    assert len(seen) == 1
    assert "this hook is broken" in capsys.readouterr().err
