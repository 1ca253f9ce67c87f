"""Machines of one provisioner, from the job that lacks one to the end, over a real store."""

from __future__ import annotations

import json

import pytest

from farhand.errors import NotFound, StoreFailed, Usage
from farhand.model import Ask
from farhand.provision import desk as desk_module
from farhand.provision import provisioning, steps
from farhand_worker.protocol import Inventory, as_dict
from tests.unit.provision.conftest import GPU, Office, assigned

pytestmark = pytest.mark.anyio


async def test_a_job_that_nobody_could_take_has_a_machine_asked_for_and_says_so(office: Office) -> None:
    await office.open()
    job = await office.queued()
    await office.step()
    (order,) = office.fake.orders
    assert (order.url, order.profile.name) == ("https://flows.example.org", "gpu")
    (machine,) = office.open_machines
    assert (machine.state, machine.external, machine.name) == ("pending", "4242", order.name)
    assert office.message(job).endswith(
        "no worker is attached; requested hpc/gpu, job 4242, PENDING: Priority"
    )
    link = await office.attaches(machine)
    await office.step()
    assert office.open_machines[0].state == "attached"
    assert assigned(link) == [job.id]
    assert len(office.fake.orders) == 1


async def test_a_job_that_somebody_could_take_has_none_asked_for(office: Office) -> None:
    await office.open()
    _, link = await office.world.attach(labels=("gpu",))
    office.world.fleet.member("box").parallel = 1
    jobs = [await office.queued() for _ in range(3)]
    await office.step()
    assert len(assigned(link)) == 1
    assert office.fake.orders == []
    assert "requested" not in office.message(jobs[-1])


@pytest.mark.fault("4.11")
async def test_many_jobs_want_one_machine_of_a_profile(office: Office) -> None:
    await office.open()
    for _ in range(3):
        await office.queued()
        await office.step()
    assert len(office.fake.orders) == 1


@pytest.mark.fault("4.11")
async def test_where_more_are_allowed_as_many_are_asked_for_as_the_queue_is_deep(office: Office) -> None:
    await office.open(max_outstanding=3)
    for _ in range(2):
        await office.queued()
    await office.step()
    assert len(office.fake.orders) == 2
    link = await office.attaches(office.open_machines[0])
    await office.attaches(office.open_machines[1])
    await office.step()
    for _ in range(5):
        await office.queued()
    await office.step()
    assert len(assigned(link)) == 1
    assert len(office.fake.orders) == 3, "both are busy, and a third is all that may be had"


async def test_the_end_of_a_machine_ends_its_token_and_makes_room_for_the_next(office: Office) -> None:
    await office.open()
    await office.queued()
    await office.step()
    (machine,) = office.open_machines
    link = await office.attaches(machine)
    await office.step()
    await office.leaves(machine, link)
    office.fake.let(machine.name, "ended", "COMPLETED")
    await office.step()
    assert (await office.ended()).reason == "COMPLETED"
    token = await office.world.store.tokens.get(machine.jti)
    assert token is not None
    assert token.revoked_at is not None
    await office.step()
    assert len(office.fake.orders) == 2, "its job is queued again"


@pytest.mark.fault("4.6")
async def test_a_refused_submission_is_shown_in_its_own_words_and_tried_again(office: Office) -> None:
    await office.open()
    office.interval_s = 0.0
    job = await office.queued()
    office.fake.submit_fault = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    await office.step()
    assert "submitting gpu failed: sbatch: error: QOSMaxSubmitJobPerUserLimit" in office.message(job)
    assert "QOSMaxSubmitJobPerUserLimit" in office.trouble()
    office.fake.submit_fault = ""
    await office.step()
    assert office.open_machines[0].state == "pending"
    assert office.open_machines[0].tries == 2
    assert office.trouble() == ""
    assert len({order.name for order in office.fake.orders}) == 1


async def test_refusals_are_not_repeated_at_once(office: Office) -> None:
    office.interval_s = 600.0
    await office.open()
    await office.queued()
    await office.step()
    office.fake.submit_fault = "no"
    office.fake.let(office.open_machines[0].name, "ended", "BOOT_FAIL")
    office.desk._polled_at = float("-inf")
    for _ in range(3):
        await office.step()
    assert len(office.fake.orders) == 1
    assert "gpu: BOOT_FAIL" in office.trouble()


@pytest.mark.fault("4.4")
async def test_a_submission_that_was_accepted_unsaid_is_found_before_another_is_made(office: Office) -> None:
    await office.open()
    await office.queued()
    office.fake.submit_fault = "accepted"
    for _ in range(3):
        await office.step()
    assert len(office.fake.orders) == 1
    assert (office.open_machines[0].state, office.open_machines[0].external) == ("pending", "4242")


@pytest.mark.fault("4.5")
async def test_a_scheduler_that_is_away_leaves_everything_outstanding(office: Office) -> None:
    """B078: and it is asked less and less often."""
    await office.open()
    await office.queued()
    await office.step()
    usual_s = office.desk._interval_s
    office.fake.status_fault = "squeue: error: Unable to contact slurm controller"
    for _ in range(5):
        office.desk._polled_at = float("-inf")
        await office.step()
    assert office.desk._interval_s == min(desk_module.POLL_S_MAX, usual_s * 2**5)
    assert office.open_machines[0].state == "pending"
    assert "Unable to contact" in office.trouble()
    assert len(office.fake.orders) == 1
    office.fake.status_fault = ""
    office.desk._polled_at = float("-inf")
    await office.step()
    assert office.trouble() == ""


async def test_one_that_does_not_attach_in_time_is_cancelled_and_asked_for_anew(office: Office) -> None:
    """B029."""
    await office.open(provision_timeout_s=5)
    await office.queued()
    await office.step()
    await office.machines.change(office.open_machines[0], waits_since=0.0)
    for _ in range(3):
        await office.step()
    assert len(office.fake.cancelled) == 1
    assert (await office.ended()).reason == "no worker attached within 5 s; it was PENDING: Priority"
    assert len(office.fake.orders) == 2


@pytest.mark.fault("4.12")
async def test_a_token_that_expires_in_the_queue_ends_the_request_and_another_is_made(office: Office) -> None:
    await office.open()
    await office.queued()
    await office.step()
    await office.machines.change(office.open_machines[0], expires_at=0.0)
    for _ in range(3):
        await office.step()
    assert "its token has expired while it waited" in (await office.ended()).reason
    assert [machine.state for machine in office.open_machines] == ["pending"]
    assert len(office.fake.orders) == 2


async def test_one_that_nothing_waits_for_any_more_is_given_back(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "UNNEEDED_S", 0.0)
    await office.open()
    job = await office.queued()
    await office.step()
    assert office.open_machines[0].state == "pending", "something waits for it"
    office.world.queue.remove(job.id)
    for _ in range(4):
        await office.step()
    assert office.open_machines == []
    assert (await office.ended()).reason == "nothing waits for it any more"
    assert office.desk.may_ask("gpu")


@pytest.mark.fault("4.8")
async def test_one_that_its_user_cancels_is_closed_with_slurms_word(office: Office) -> None:
    await office.open()
    await office.queued()
    await office.step()
    office.fake.let(office.open_machines[0].name, "ended", "CANCELLED")
    office.desk._not_before["gpu"] = float("inf")
    await office.step()
    assert (await office.ended()).reason == "CANCELLED"
    assert "gpu: CANCELLED" in office.trouble()


@pytest.mark.fault("4.9")
async def test_one_that_is_put_back_into_the_queue_is_waited_for(office: Office) -> None:
    await office.open()
    await office.queued()
    await office.step()
    (machine,) = office.open_machines
    link = await office.attaches(machine)
    await office.step()
    await office.leaves(machine, link)
    office.fake.let(machine.name, "pending", "PENDING: BeginTime")
    for _ in range(2):
        await office.step()
    assert [m.state for m in office.open_machines] == ["pending"]
    assert len(office.fake.orders) == 1
    again = await office.attaches(machine, instance="i2")
    await office.step()
    assert office.open_machines[0].state == "attached"
    assert len(assigned(again)) == 1


@pytest.mark.fault("4.10")
async def test_a_machine_with_less_than_its_profile_says_is_not_asked_for_again(office: Office) -> None:
    await office.open(profile={"gpus": 2}, max_outstanding=9)
    job = await office.queued(Ask(labels=("gpu",), gpus=2))
    await office.step()
    (machine,) = office.open_machines
    await office.attaches(machine, inventory=as_dict(Inventory(gpus=1)))
    for _ in range(3):
        await office.step()
    assert len(office.fake.orders) == 1
    assert office.message(job).endswith("a machine of hpc/gpu came and could not take it")


async def test_the_worker_of_a_machine_that_has_ended_is_forgotten_in_time(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B012."""
    await office.open()
    await office.queued()
    await office.step()
    (machine,) = office.open_machines
    link = await office.attaches(machine)
    await office.step()
    await office.leaves(machine, link)
    office.fake.let(machine.name, "ended", "COMPLETED")
    await office.step()
    await office.provisioning._look_back()
    assert await office.world.store.workers.get(machine.name) is not None
    monkeypatch.setattr(provisioning, "REMEMBERED_S", -1.0)
    office.provisioning._look_back_at = 0.0
    await office.provisioning._look_back()
    assert await office.world.store.workers.get(machine.name) is None


@pytest.mark.fault("4.10")
async def test_a_machine_with_another_python_than_the_code_needs_is_not_asked_for_again(
    office: Office,
) -> None:
    await office.open(max_outstanding=9)
    job = await office.queued(Ask(labels=("gpu",), requires_python=">=3.13"))
    await office.step()
    await office.attaches(office.open_machines[0])
    for _ in range(3):
        await office.step()
    assert len(office.fake.orders) == 1
    assert office.message(job).endswith("a machine of hpc/gpu came and could not take it")


# ---------------------------------------------------------------- stop and start


# ---------------------------------------------------------------- what is configured


async def test_a_file_that_cannot_be_taken_leaves_the_old_in_force_and_is_shown(office: Office) -> None:
    await office.open()
    (office.directory / "provisioners.json").write_text("[{]")
    await office.provisioning._reread()
    provisions = await office.machines.provisions()
    assert [one.name for one in provisions.provisioners] == ["hpc"]
    assert "provisioners.json is no JSON" in provisions.trouble
    office.configure(max_outstanding=2)
    await office.provisioning._reread()
    provisions = await office.machines.provisions()
    assert provisions.trouble == ""
    assert provisions.provisioners[0].profiles[0].max_outstanding == 2


async def test_a_file_that_is_wrong_at_the_start_ends_it(office: Office) -> None:
    office.configure(max_outstanding=0)
    with pytest.raises(Usage, match="max_outstanding 0"):
        await office.provisioning.open()


async def test_a_provisioner_that_is_taken_out_gives_its_machines_back(office: Office) -> None:
    await office.open()
    await office.queued()
    await office.step()
    (office.directory / "provisioners.json").write_text("[]")
    await office.provisioning._reread()
    assert office.fake.has() == {}
    assert office.fake.closed


async def test_a_file_that_the_store_was_away_for_is_taken_at_the_next_look(office: Office) -> None:
    await office.open()
    await office.queued()
    await office.step()
    (office.directory / "provisioners.json").write_text("[]")
    office.world.fail_writes(StoreFailed())
    with pytest.raises(StoreFailed):
        await office.provisioning._reread()
    await office.provisioning._reread()
    assert office.fake.has() == {}
    assert office.fake.closed


async def test_a_machine_whose_provisioner_is_gone_at_the_start_is_told_and_closed(office: Office) -> None:
    await office.open(on_stop="keep")
    await office.queued()
    await office.step()
    await office.provisioning.close()
    office.begin()
    (office.directory / "provisioners.json").write_text("[]")
    await office.provisioning.open()
    said = "its provisioner is not configured any more; job 4242 may still be there"
    assert (await office.ended()).reason == said


async def test_a_test_tries_every_profile_and_an_unknown_one_is_named(office: Office) -> None:
    await office.open()
    checks = await office.machines.test("hpc", submit=True)
    assert [(check.what, check.ok, check.said) for check in checks] == [("try gpu", True, "submitted")]
    with pytest.raises(NotFound, match="there is no provisioner 'x'; there are hpc"):
        await office.machines.test("x", submit=False)


async def test_the_loops_ask_by_themselves_when_something_waits(office: Office) -> None:
    office.interval_s = 0.01
    office.configure()
    await office.provisioning.open()
    office.provisioning.start()
    office.world.dispatcher.holding_back = False
    office.world.dispatcher.start()
    await office.queued(GPU)
    office.world.wakeup.set()
    for _ in range(500):
        if office.fake.orders:
            break
        await office.machines.changed.wait(0.02)
    assert len(office.fake.orders) == 1
    assert json.loads((office.directory / "provisioners.json").read_text())[0]["name"] == "hpc"
    await office.world.dispatcher.stop()
