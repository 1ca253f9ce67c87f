"""The order of the queue, and what a dispatch costs."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farhand.engine import queue as queue_module
from farhand.engine.queue import Lane, Queue
from farhand.model import Ask, Job
from farhand.placement import Kin, Placement
from farhand.resources import Amounts
from tests.unit.engine.records import a_job

GPU = Ask(labels=("gpu",))


def drained(queue: Queue) -> list[str]:
    """Take everything in the order in which it would be handed over."""
    order: list[str] = []
    while heads := queue.heads():
        queue.take(heads[0])
        order.append(heads[0].id)
    return order


def test_the_oldest_is_first_and_priority_goes_before_age() -> None:
    queue = Queue()
    queue.add(a_job("young", age_at=3.0), 10.0)
    queue.add(a_job("old", age_at=1.0), 10.0)
    queue.add(a_job("urgent", age_at=9.0, priority=5), 10.0)
    queue.add(a_job("idle", age_at=0.0, priority=-1), 10.0)
    assert drained(queue) == ["urgent", "old", "young", "idle"]
    assert len(queue) == 0


def test_jobs_of_one_age_go_by_their_ids() -> None:
    queue = Queue()
    for name in ("c", "a", "b"):
        queue.add(a_job(name, age_at=1.0), 10.0)
    assert drained(queue) == ["a", "b", "c"]


def test_the_calls_of_a_run_go_by_their_numbers() -> None:
    queue = Queue()
    for number in (10, 9, 2, 11, 1):
        queue.add(a_job(f"run.{number}", age_at=1.0), 10.0)
    assert drained(queue) == ["run.1", "run.2", "run.9", "run.10", "run.11"]


def test_lanes_are_ordered_by_their_heads_and_do_not_hold_each_other_up() -> None:
    """B067, B068: a job that waits for a machine stands in nobody's way, and order holds inside a lane."""
    queue = Queue()
    queue.add(a_job("gpu1", age_at=1.0, ask=GPU), 10.0)
    queue.add(a_job("gpu2", age_at=2.0, ask=GPU), 10.0)
    queue.add(a_job("cpu", age_at=3.0), 10.0)
    assert [job.id for job in queue.heads()] == ["gpu1", "cpu"]
    queue.take(queue.heads()[1])
    assert [job.id for job in queue.heads()] == ["gpu1"]


def test_a_delayed_job_is_due_at_its_moment_and_then_as_old_as_it_was() -> None:
    queue = Queue()
    queue.add(a_job("later", age_at=1.0, not_before=20.0), 10.0)
    queue.add(a_job("now", age_at=2.0), 10.0)
    assert queue.next_due_at() == 20.0
    queue.ripen(19.9)
    assert [job.id for job in queue.heads()] == ["now"]
    queue.ripen(20.0)
    assert [job.id for job in queue.heads()] == ["later"]
    assert queue.next_due_at() is None


def test_a_delay_that_is_over_already_is_none() -> None:
    queue = Queue()
    queue.add(a_job("a", not_before=5.0), 10.0)
    assert drained(queue) == ["a"]


def test_a_job_added_again_replaces_what_was_there() -> None:
    queue = Queue()
    first = a_job("a", age_at=1.0)
    queue.add(first, 10.0)
    queue.add(replace(first, attempt=2), 10.0)
    assert len(queue) == 1
    assert [job.attempt for job in queue.heads()] == [2]
    assert drained(queue) == ["a"]


def test_a_job_replaced_by_another_record_of_the_same_place_is_never_compared() -> None:
    queue = Queue()
    for attempt in range(20):
        queue.add(a_job("a", age_at=1.0, attempt=attempt), 10.0)
        queue.add(a_job("b", age_at=1.0, attempt=attempt), 10.0)
    assert [job.attempt for job in queue.heads()] == [19]
    assert drained(queue) == ["a", "b"]


def test_a_job_moved_to_another_lane_leaves_the_first() -> None:
    queue = Queue()
    queue.add(a_job("a"), 10.0)
    queue.add(a_job("a", ask=GPU), 10.0)
    assert [job.ask for job in queue.heads()] == [GPU]


def test_a_delay_that_was_dropped_does_not_queue_the_job_twice() -> None:
    queue = Queue()
    queue.add(a_job("a", not_before=20.0), 10.0)
    queue.add(a_job("a"), 11.0)
    queue.ripen(30.0)
    assert drained(queue) == ["a"]


def test_a_delay_that_was_extended_is_kept() -> None:
    queue = Queue()
    queue.add(a_job("a", not_before=20.0), 10.0)
    queue.add(a_job("a", not_before=40.0), 11.0)
    queue.ripen(30.0)
    assert queue.heads() == []
    queue.ripen(40.0)
    assert drained(queue) == ["a"]


def test_a_removed_job_is_forgotten_wherever_it_waits() -> None:
    queue = Queue()
    queue.add(a_job("first", age_at=1.0), 10.0)
    queue.add(a_job("middle", age_at=2.0), 10.0)
    queue.add(a_job("last", age_at=3.0), 10.0)
    queue.add(a_job("delayed", not_before=20.0), 10.0)
    for name in ("first", "middle", "delayed", "never there"):
        queue.remove(name)
    queue.ripen(30.0)
    assert drained(queue) == ["last"]


def test_why_a_run_waits_is_told_for_its_own_job_only() -> None:
    queue = Queue()
    own, call = a_job("own", run="r1", ask=GPU), a_job("call", run="r1", kind="call")
    for job in (own, call):
        queue.add(job, 10.0)
    queue.explain(queue.lane_of(own), lambda: Placement(None, message="waits for label gpu"))
    queue.explain(queue.lane_of(call), lambda: Placement(None, message="waits for a free slot"))
    assert queue.reason_of_run("r1") == "waits for label gpu"
    queue.take(next(job for job in queue if job.id == "call"))
    assert queue.reason_of_run("r1") == "waits for label gpu", "a call that left takes nothing along"
    queue.remove("own")
    assert queue.reason_of_run("r1") == ""
    assert queue.reason_of_run("unheard of") == ""


def test_a_reason_does_not_outlive_its_lane() -> None:
    queue = Queue()
    queue.add(a_job("a", run="r1"), 10.0)
    queue.explain(queue.lane_of(a_job("a")), lambda: Placement(None, message="waits for a free slot"))
    drained(queue)
    queue.add(a_job("b", run="r2"), 10.0)
    assert queue.reason_of_run("r2") == ""


@pytest.mark.parametrize("waiting", [10, 10_000])
def test_the_cost_of_a_dispatch_does_not_grow_with_the_jobs_that_wait(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: a look at the heads touches one entry a lane."""
    queue = Queue()
    for number in range(waiting):
        queue.add(a_job(f"{number:06}", ask=GPU if number % 2 else Ask()), 10.0)
    looked_at: list[str] = []
    places = queue._places

    class Counting(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            looked_at.append(key)
            return super().get(key, default)

    queue._places = Counting(places)
    assert len(queue.heads()) == 2
    assert len(looked_at) == 2


def test_with_thousands_of_lanes_a_take_touches_only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    for number in range(3000):
        queue.add(a_job(f"{number:06}", age_at=float(number), ask=Ask(runs_on=f"w{number}")), 10.0)
    heads = queue.heads()
    assert len(heads) == 3000
    popped: list[Any] = []

    real = heapq.heappop

    def counting_pop(heap: list[Any]) -> Any:
        popped.append(heap)
        return real(heap)

    monkeypatch.setattr(queue_module.heapq, "heappop", counting_pop)
    queue.take(heads[0])
    assert len(popped) == 1
    assert len(queue) == 2999
    assert heads[0] not in queue.heads()


def test_a_job_that_comes_back_waits_ten_seconds_in_a_lane_of_its_own() -> None:
    queue = Queue()
    queue.add(a_job("back", age_at=1.0, queued_at=10.0, last_worker="box"), 10.0)
    queue.add(a_job("other", age_at=2.0), 10.0)
    assert [job.id for job in queue.heads()] == ["back", "other"]
    assert queue.next_due_at() == 20.0
    queue.ripen(20.0)
    assert [job.id for job in queue.heads()] == ["back"]
    assert queue.lane_of(queue.heads()[0]) == Lane(Ask(), module="weather")


def test_calls_change_their_lane_with_the_workers_their_ancestors_are_on() -> None:
    on: list[Kin] = []
    queue = Queue(lambda _: tuple(on))
    call = a_job("call", run="r1", kind="call", key="k", parent_job="own", depth=1)
    queue.add(call, 10.0)
    on.append(Kin("own", "r1", "f", "box", False))
    queue.relane("own", 10.0)
    assert queue.lane_of(call) == Lane(Ask(), module="weather", depth=1, kin=frozenset({("box", Amounts())}))
    assert drained(queue) == ["call"]


def test_a_call_changes_its_lane_when_what_called_its_caller_comes_and_no_other_does() -> None:
    on = [Kin("caller", "r1", "f", "box", False, parent="own")]
    asked: list[str] = []

    def kin_of(job: Job) -> tuple[Kin, ...]:
        asked.append(job.id)
        return tuple(on) if job.id == "below" else ()

    queue = Queue(kin_of)
    below = a_job("below", run="r1", kind="call", key="k", parent_job="caller", depth=2)
    queue.add(below, 10.0)
    for number in range(3):
        queue.add(a_job(f"beside{number}", run="r1", kind="call", key=f"k{number}", parent_job="own"), 10.0)
    asked.clear()
    queue.relane("beside0", 10.0)
    assert asked == []
    on.append(Kin("own", "r1", "f", "mill", True))
    queue.relane("own", 10.0)
    lane = queue.lane_of(below)
    assert lane is not None
    assert lane.kin == {("box", Amounts()), ("mill", Amounts())}
    queue.remove("below")
    asked.clear()
    queue.relane("caller", 10.0)
    assert asked == []


operations = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "take", "ripen"]),
        st.sampled_from("abcd"),
        st.integers(-1, 1),
        st.integers(0, 3),
        st.integers(0, 8),
        st.booleans(),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(operations)
def test_whatever_happens_the_queue_agrees_with_a_plain_list(steps: list[tuple[Any, ...]]) -> None:
    queue = Queue()
    expected: dict[str, Job] = {}
    now = 0.0
    for number, (step, name, priority, age, delay, gpu) in enumerate(steps):
        if step == "add":
            job = a_job(
                name,
                priority=priority,
                age_at=float(age),
                not_before=now + delay,
                ask=GPU if gpu else Ask(),
                attempt=number,
            )
            expected[name] = job
            queue.add(job, now)
        elif step == "remove":
            expected.pop(name, None)
            queue.remove(name)
        elif step == "take" and (heads := queue.heads()):
            queue.take(heads[0])
            del expected[heads[0].id]
        elif step == "ripen":
            now += delay
            queue.ripen(now)
    ready = [job for job in expected.values() if job.not_before <= now]
    queue.ripen(now)
    assert len(queue) == len(expected)
    by_lane: dict[Ask, Job] = {}
    for job in sorted(ready, key=lambda job: (-job.priority, job.age_at, job.id)):
        by_lane.setdefault(job.ask, job)
    assert queue.heads() == list(by_lane.values())


def test_jobs_of_other_code_do_not_hold_each_other_up() -> None:
    queue = Queue()
    for name, code in (("a", "sha256:1"), ("b", "sha256:1"), ("c", "sha256:2")):
        queue.add(a_job(name, fingerprint=code), 10.0)
    queue.add(a_job("d", fingerprint="sha256:1", entry="other:weather"), 10.0)
    assert [job.id for job in queue.heads()] == ["a", "c", "d"]


def test_a_job_that_is_set_apart_holds_up_no_other() -> None:
    queue = Queue()
    queue.set_apart("a")
    for name in ("a", "b"):
        queue.add(a_job(name), 10.0)
    assert [job.id for job in queue.heads()] == ["a", "b"]


def test_the_ancestors_of_calls_that_come_together_are_looked_up_once_a_caller() -> None:
    asked: list[str | None] = []

    def kin_of(job: Job) -> tuple[Kin, ...]:
        asked.append(job.parent_job)
        return ()

    queue = Queue(kin_of)
    jobs = [a_job(f"j{number}", kind="call", parent_job="ab"[number % 2]) for number in range(6)]
    queue.add_all(jobs, 0.0)
    assert asked == ["a", "b"]
    assert len(queue) == 6
