"""Who may be a worker, what it keeps when it comes back, and what it has lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from farhand.engine import attachment as attachment_module
from farhand.engine.attachment import Attached, Credential
from farhand.engine.member import LOST, OFFLINE, ONLINE
from farhand.errors import StoreFailed
from farhand.model import Ask, Job
from farhand.store import Store
from farhand_worker import protocol
from tests.unit.engine.records import Clock, FakeLink, a_hello
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """What happens while the old session is listened for; the clock moves with it."""
    clock = Clock()

    def install(happens: Callable[[], None]) -> None:
        async def sleep(duration_s: float) -> None:
            clock.now += duration_s
            happens()

        monkeypatch.setattr(attachment_module, "time", clock)
        monkeypatch.setattr(attachment_module.asyncio, "sleep", sleep)

    return install


def resumed(answer: Any) -> list[protocol.Resume]:
    assert isinstance(answer, Attached)
    return answer.resume


def refused(answer: Any) -> tuple[str, bool]:
    assert isinstance(answer, protocol.Refused)
    return answer.code, answer.final


async def the_attempt(world: World, job: Job) -> tuple[str, str]:
    attempt = (await world.store.runs.attempts(job.run))[0]
    return attempt.outcome, attempt.reason


# ---------------------------------------------------------------- letting in


async def test_a_worker_is_what_its_token_says_and_has_what_it_tells(world: World) -> None:
    answer, _ = await world.attach(a_hello(parallel=3, draining=True), labels=("gpu",))
    assert resumed(answer) == []
    box = world.fleet.member("box")
    assert (box.state, box.labels, box.parallel, box.draining) == (ONLINE, {"gpu"}, 3, True)
    worker = await world.store.workers.get("box")
    assert worker is not None
    assert (worker.state, worker.labels, worker.host, worker.address) == (
        "online",
        ("gpu",),
        "machine",
        "10.0.0.1",
    )
    assert await world.event_kinds() == ["worker.attached"]


async def test_a_hello_that_lists_what_is_no_job_is_the_peers_fault_and_changes_nothing(world: World) -> None:
    with pytest.raises(protocol.ProtocolViolation, match="hello lists"):
        await world.attach(a_hello(held=[{"lease": 1}]))
    assert world.fleet.get("box") is None


async def test_no_job_is_placed_on_a_worker_before_it_is_welcomed(world: World) -> None:
    """Also when it comes back so soon that it still counts as online."""
    await world.attach()
    job = await world.start_run()
    link = FakeLink()
    answer = await world.attachments.attach(a_hello(), Credential("box", (), "jti"), link, "")
    assert isinstance(answer, Attached)
    await world.hand_over()
    assert (await world.job(job)).state == "queued"
    assert link.sent == []
    world.attachments.welcomed(answer.member, link)
    await world.hand_over()
    assert [assign.job for assign in link.of(protocol.Assign)] == [job.id]


async def test_a_session_that_was_replaced_before_its_welcome_is_not_welcomed(world: World) -> None:
    earlier, later = FakeLink(), FakeLink()
    for link in (earlier, later):
        await world.attachments.attach(a_hello(), Credential("box", (), "jti"), link, "")
    box = world.fleet.member("box")
    world.attachments.welcomed(box, earlier)
    assert box.state != ONLINE
    world.attachments.welcomed(box, later)
    assert box.state == ONLINE


async def test_a_worker_has_one_session_and_the_earlier_one_is_closed(world: World) -> None:
    _, earlier = await world.attach()
    _, link = await world.attach()
    assert earlier.closed == "the worker opened another session"
    assert link.closed is None
    assert world.fleet.member("box").link is link


async def test_an_attach_that_the_store_cannot_record_leaves_no_dead_session(world: World) -> None:
    world.fail_writes(StoreFailed())
    with pytest.raises(StoreFailed):
        await world.attach()
    box = world.fleet.member("box")
    assert box.link is None
    assert box.state != ONLINE
    answer, _ = await world.attach()
    assert isinstance(answer, Attached)
    assert box.state == ONLINE


async def test_a_known_instance_is_back_though_the_store_refuses_and_that_is_recorded_later(
    store: Store,
) -> None:
    world = World(store, protocol.Times().scaled(0.01))
    _, link, job = await world.worker_with_job()
    box = world.fleet.member("box")
    world.attachments.closed(box, link)
    world.fail_writes(StoreFailed())
    held = [protocol.as_dict(protocol.Held(job.id, job.lease or 0))]
    answer, again = await world.attach(a_hello(held=held, host="elsewhere"))
    assert isinstance(answer, Attached)
    assert (box.state, box.link, box.busy) == (ONLINE, again, 1)
    (following,) = world.attachments._recordings
    await following
    stored = await world.store.workers.get("box")
    assert stored is not None
    assert stored.host == "elsewhere"


async def test_what_is_to_be_taken_back_first_waits_for_the_store(world: World) -> None:
    _, link, _ = await world.worker_with_job()
    world.attachments.closed(world.fleet.member("box"), link)
    world.fail_writes(StoreFailed(), times=2)
    with pytest.raises(StoreFailed):
        await world.attach()


# ---------------------------------------------------------------- coming back


async def test_the_same_instance_goes_on_with_its_job_from_what_is_recorded(world: World) -> None:
    _, _, job = await world.worker_with_job()
    job = await world.started(job)
    await world.report(job, protocol.Log(3.0, "a line"), first=2)
    await world.report(job, protocol.Log(3.0, "from the pipe"), source="agent")
    answer, _ = await world.attach(a_hello(held=[world.held(job)]))
    assert resumed(answer) == [protocol.Resume(job.id, job.lease or 0, {"engine": 2, "agent": 1})]
    assert await world.job(job) == job
    assert world.fleet.member("box").busy == 1


async def test_an_attempt_that_rode_an_outage_is_marked(world: World) -> None:
    """A firewall that refuses looks like a dead server: another attempt may have overlapped."""
    _, _, job = await world.worker_with_job()
    await world.attach(a_hello(held=[world.held(job) | {"rode_outage": True}]))
    (attempt,) = await world.store.runs.attempts(job.run)
    assert attempt.overlap_possible


async def test_a_job_that_is_being_cancelled_is_resumed_as_that(world: World) -> None:
    _, link, job = await world.worker_with_job()
    await world.started(job)
    world.attachments.closed(world.fleet.member("box"), link)
    world.consequences.follow(await world.store.runs.cancel(job.run, 3.0))
    answer, _ = await world.attach(a_hello(held=[world.held(job)]))
    (resume,) = resumed(answer)
    assert resume.cancelling
    assert not resume.fenced


async def test_a_job_the_agent_never_received_is_queued_again_at_no_cost(world: World) -> None:
    """B018: an assign that was swallowed is neither lost nor executed twice."""
    box, _, job = await world.worker_with_job()
    answer, _ = await world.attach(a_hello(held=[]))
    assert resumed(answer) == []
    after = await world.job(job)
    assert (after.state, after.crashes, after.retries_used, after.age_at) == ("queued", 0, 0, job.age_at)
    assert await the_attempt(world, job) == ("not_started", "handoff_failed")
    assert box.busy == 0
    assert [queued.id for queued in world.queue.heads()] == [job.id]


async def test_a_job_held_under_an_older_lease_is_fenced(world: World) -> None:
    _, _, job = await world.worker_with_job()
    await world.attach(a_hello(held=[]))
    await world.hand_over()
    again = await world.job(job)
    assert again.lease != job.lease
    answer, _ = await world.attach(a_hello(held=[world.held(job), world.held(again)]))
    assert [(resume.lease, resume.fenced) for resume in resumed(answer)] == [
        (job.lease, True),
        (again.lease, False),
    ]
    assert world.fleet.member("box").busy == 1


async def test_another_workers_lease_and_a_job_nobody_knows_are_fenced(world: World) -> None:
    _, _, job = await world.worker_with_job()
    unknown = protocol.as_dict(protocol.Held("unheard-of", 99))
    answer, _ = await world.attach(a_hello("thief", held=[world.held(job), unknown]))
    assert all(resume.fenced for resume in resumed(answer))
    assert world.fleet.member("thief").busy == 0
    assert world.fleet.member("box").busy == 1


@pytest.mark.fault("3.23")
async def test_a_lease_of_another_incarnation_of_the_store_is_fenced_whatever_its_number(
    world: World,
) -> None:
    _, _, job = await world.worker_with_job()
    answer, _ = await world.attach(a_hello(held=[world.held(job)], incarnation="before-the-restore"))
    assert [resume.fenced for resume in resumed(answer)] == [True]
    assert (await world.job(job)).state == "queued"
    await world.hand_over()
    again = await world.job(job)
    same = world.store.meta.incarnation()
    answer, _ = await world.attach(a_hello(held=[world.held(again)], incarnation=same))
    assert [resume.fenced for resume in resumed(answer)] == [False]


async def test_a_result_that_was_recorded_but_not_acknowledged_is_fenced_with_its_number(
    world: World,
) -> None:
    _, _, job = await world.worker_with_job()
    await world.report(job, protocol.Started(2.0, 1, "3.11"), protocol.Result("completed", 3.0))
    answer, _ = await world.attach(a_hello(held=[world.held(job, ended=True)]))
    assert resumed(answer) == [protocol.Resume(job.id, job.lease or 0, {"engine": 2}, fenced=True)]
    assert (await world.run_of(job)).state == "completed"


async def test_a_report_committed_while_the_worker_comes_back_leaves_no_slot_taken(world: World) -> None:
    """The earlier session's last batch may land between the look at the store and the answer."""
    _, _, job = await world.worker_with_job()
    recorded = world.store.reports.recorded

    async def just_then(job_id: str, lease: int) -> dict[str, int]:
        numbers = await recorded(job_id, lease)
        await world.report(job, protocol.Result("completed", 3.0))
        return numbers

    world.store.reports.recorded = just_then  # type: ignore[method-assign]
    await world.attach(a_hello(held=[world.held(job)]))
    assert world.fleet.member("box").busy == 0
    assert (await world.run_of(job)).state == "completed"


async def test_a_worker_that_comes_back_is_told_the_outcomes_it_may_have_missed(world: World) -> None:
    _, link, parent = await world.worker_with_job()
    parent = await world.started(parent)
    ask = {"labels": [], "policy": "require", "runs_on": "any"}
    call = protocol.Call("key", "fit", "weather:fit", {"enc": "json", "text": "[]"}, ask, 3.0)
    await world.report(parent, call, first=2)
    await world.hand_over()
    (assign,) = [assign for assign in link.of(protocol.Assign) if assign.kind == "call"]
    child = await world.store.jobs.get(assign.job)
    assert child is not None
    world.attachments.closed(world.fleet.member("box"), link)
    await world.report(
        child, protocol.Started(4.0, 1, "3.11"), protocol.Result("completed", 5.0, value={"enc": "json"})
    )
    assert link.of(protocol.Outcome) == []
    await world.attach(a_hello(held=[world.held(parent)]))
    (outcome,) = await world.attachments.outcomes(world.fleet.member("box"))
    assert (outcome.job, outcome.lease, outcome.key) == (parent.id, parent.lease, "key")
    assert outcome.body["state"] == "completed"
    assert outcome.body["value"] == {"enc": "json"}


# ---------------------------------------------------------------- another instance of the same name


async def test_who_has_swept_its_predecessor_has_the_name_at_once(world: World) -> None:
    _, earlier, job = await world.worker_with_job()
    await world.started(job)
    answer, _ = await world.attach(a_hello(instance="i2", swept="i1"))
    assert resumed(answer) == []
    after = await world.job(job)
    assert (after.state, after.crashes, after.retries_used) == ("queued", 1, 0)
    assert await the_attempt(world, job) == ("lost", "worker_lost")
    assert earlier.closed is not None
    assert world.fleet.member("box").instance == "i2"


async def test_a_predecessors_job_that_had_not_begun_costs_nothing(world: World) -> None:
    _, _, job = await world.worker_with_job()
    await world.attach(a_hello(instance="i2", swept="i1"))
    after = await world.job(job)
    assert (after.state, after.crashes) == ("queued", 0)


async def test_a_successor_that_still_has_the_spool_goes_on_reporting(world: World) -> None:
    _, _, job = await world.worker_with_job()
    job = await world.started(job)
    hello = a_hello(instance="i2", swept="i1", held=[world.held(job, ended=True)])
    answer, _ = await world.attach(hello)
    assert [resume.fenced for resume in resumed(answer)] == [False]
    assert await world.job(job) == job


@pytest.mark.fault("3.19")
async def test_a_machine_that_was_booted_again_has_its_name_at_once(world: World) -> None:
    await world.worker_with_job()
    answer, _ = await world.attach(a_hello(instance="i2", boot_id="b2"))
    assert isinstance(answer, Attached)


async def test_another_machine_with_another_boot_proves_nothing(
    world: World, meanwhile: Callable[..., None]
) -> None:
    await world.worker_with_job()
    meanwhile(lambda: None)
    answer, _ = await world.attach(a_hello(instance="i2", host="elsewhere", boot_id="b2"))
    assert refused(answer) == ("name_taken", False)


async def test_a_namesake_is_refused_for_good_while_the_worker_beats(
    world: World, meanwhile: Callable[..., None]
) -> None:
    _, link, job = await world.worker_with_job()
    box = world.fleet.member("box")
    meanwhile(lambda: world.attachments.heard(box))
    answer, _ = await world.attach(a_hello(instance="i2", host="elsewhere"))
    assert refused(answer) == ("namesake", True)
    assert isinstance(answer, protocol.Refused)
    assert "on machine" in answer.message
    assert link.closed is None
    assert box.instance == "i1"
    assert await world.job(job) == job


async def test_a_newcomer_waits_for_the_leases_of_one_that_is_silent(
    world: World, meanwhile: Callable[..., None]
) -> None:
    _, link, job = await world.worker_with_job()
    box = world.fleet.member("box")
    meanwhile(lambda: None)
    assert refused((await world.attach(a_hello(instance="i2")))[0]) == ("name_taken", False)
    world.attachments.closed(box, link)
    box.state = LOST
    assert refused((await world.attach(a_hello(instance="i2")))[0]) == ("name_taken", False)
    assert await world.job(job) == job
    box.state = OFFLINE
    answer, _ = await world.attach(a_hello(instance="i2"))
    assert isinstance(answer, Attached)


async def test_a_lost_worker_that_held_nothing_gives_its_name_away(world: World) -> None:
    _, link = await world.attach()
    box = world.fleet.member("box")
    world.attachments.closed(box, link)
    box.state = LOST
    answer, _ = await world.attach(a_hello(instance="i2"))
    assert isinstance(answer, Attached)


async def test_of_two_newcomers_at_once_one_has_the_name_and_the_other_asks_again(world: World) -> None:
    answers: list[str] = []

    async def come(instance: str) -> None:
        answer, _ = await world.attach(a_hello(instance=instance))
        answers.append("attached" if isinstance(answer, Attached) else answer.code)

    async with anyio.create_task_group() as group, world.fleet.member("box").gate:
        for instance in ("i2", "i3", "i4"):
            group.start_soon(come, instance)
        await anyio.wait_all_tasks_blocked()
    assert sorted(answers) == ["attached", "name_taken", "name_taken"]


async def test_one_that_comes_back_from_offline_is_not_pushed_out_by_a_newcomer_of_the_same_moment(
    world: World,
) -> None:
    await world.attach()
    box = world.fleet.member("box")
    box.state, box.link = OFFLINE, None
    answers: dict[str, Any] = {}

    async def come(instance: str) -> None:
        answers[instance], _ = await world.attach(a_hello(instance=instance))

    async with anyio.create_task_group() as group, box.gate:
        group.start_soon(come, "i1")
        group.start_soon(come, "i2")
        await anyio.wait_all_tasks_blocked()
    assert isinstance(answers["i1"], Attached)
    assert refused(answers["i2"]) == ("name_taken", False)


# ---------------------------------------------------------------- leaving


async def test_a_goodbye_makes_a_worker_offline_at_once_and_costs_its_jobs_nothing(world: World) -> None:
    box, link, job = await world.worker_with_job()
    await world.started(job)
    await world.attachments.leave(box, link, "drained")
    after = await world.job(job)
    assert (after.state, after.crashes, after.retries_used) == ("queued", 0, 0)
    assert await the_attempt(world, job) == ("stopped", "worker_left")
    assert (box.state, box.busy, box.link) == (OFFLINE, 0, None)
    assert await world.event_kinds() == ["worker.attached", "worker.offline"]


async def test_a_goodbye_on_an_earlier_session_means_nothing(world: World) -> None:
    _, earlier = await world.attach()
    await world.attach()
    box = world.fleet.member("box")
    await world.attachments.leave(box, earlier, "drained")
    assert box.state == ONLINE


async def test_a_worker_that_left_is_no_longer_waited_for(world: World) -> None:
    box, link, _ = await world.worker_with_job(ask=Ask(runs_on="box"))
    await world.attachments.leave(box, link, "drained")
    await world.hand_over()
    run = world.queue.heads()[0].run
    assert "no worker is attached" in world.queue.reason_of_run(run)
