"""Machines from a real Slurm, through a real ssh."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from tests.lab.machines import Lab, begun, goes_on, steps
from tests.lab.slurm import Slurm, cluster
from tests.lab.sshd import login_node


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def lab(tmp_path: Path, slurm: Slurm) -> Iterator[Lab]:
    """A server, not started yet, and a login node; what a test leaves in Slurm is cancelled."""
    with ExitStack() as stack:
        sshd = stack.enter_context(login_node(tmp_path / "sshd", slurm.environment))
        made = Lab(tmp_path, slurm, sshd)
        stack.callback(lambda: eventually(lambda: not slurm.ask("squeue", "-h"), 20, "no job is left"))
        stack.callback(lambda: [slurm.ask("scancel", id) for id, _, _ in slurm.jobs()])
        stack.callback(made.close)
        yield made


def test_a_machine_comes_from_the_queue_runs_what_waited_for_it_idles_out_and_is_given_back(lab: Lab) -> None:
    lab.configure()
    deployment = lab.deployment.start()
    run_id = deployment.start_run("visit")
    (machine,) = eventually(lab.outstanding, what="a machine is asked for")
    run = deployment.wait_for_run(run_id, "completed")
    (job,) = [job for job in lab.slurm.jobs("all") if job[1] == machine["name"]]
    assert run["result"] == job[0]
    eventually(lambda: not lab.outstanding(), what="the machine is given back")
    assert lab.slurm.jobs() == []
    ended = deployment.get("/provisioners")["machines"][0]
    assert (ended["state"], ended["reason"]) == ("ended", "COMPLETED")


@pytest.mark.fault("4.8")
@pytest.mark.parametrize("how", [["scancel"], ["scancel", "--batch", "--signal=TERM"]])
def test_a_job_that_its_user_cancels_gives_its_run_back_from_the_checkpoint(
    lab: Lab, tmp_path: Path, how: list[str]
) -> None:
    """B084: SIGTERM comes to every process at once, or to the worker alone; it counts as no crash."""
    lab.configure()
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    lab.slurm.ask(*how, job)
    _, done = goes_on(lab, tmp_path, run_id)
    assert [where for _, where in done] == [job, str(int(job) + 1)]
    assert lab.deployment.attempts(run_id)[0]["outcome"] == "stopped"


@pytest.mark.fault("4.9")
def test_a_job_that_slurm_requeues_is_the_same_machine_again(lab: Lab, tmp_path: Path) -> None:
    lab.configure()
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    (machine,) = lab.outstanding()
    lab.slurm.ask("scontrol", "requeue", job)
    eventually(lambda: lab.outstanding()[0]["state"] == "pending", what="it is back in the queue")
    # In the second in which the job's credential was revoked Slurm refuses to start it: not what is tried.
    lab.slurm.ask("scontrol", "update", f"jobid={job}", "StartTime=now+2")
    _, done = goes_on(lab, tmp_path, run_id)
    assert [where for _, where in done] == [job, job]
    assert [seen["name"] for seen in lab.outstanding()] == [machine["name"]]


@pytest.mark.fault("4.9")
@pytest.mark.parametrize(("partition", "same"), [("spot", True), ("scrap", False)])
def test_a_machine_that_is_preempted_gives_its_run_back_and_the_same_or_another_goes_on(
    lab: Lab, tmp_path: Path, partition: str, same: bool
) -> None:
    """One partition puts what it preempts back into the queue, one cancels it."""
    lab.configure(profile={"sbatch": [f"--partition={partition}", "--mem=200M"]})
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    (machine,) = lab.outstanding()
    urgent = ["--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600"]
    taken = lab.slurm.ask("sbatch", "--parsable", *urgent)
    eventually(lambda: (taken, "RUNNING") in [(id, s) for id, _, s in lab.slurm.jobs()], 60, "it is taken")
    eventually(lambda: [m for m in lab.outstanding() if m["state"] == "pending"], 60, "one is waited for")
    first = lab.deployment.attempts(run_id)[0]
    assert first["outcome"] == "stopped", first["message"]
    lab.slurm.ask("scancel", taken)
    lab.slurm.ask("scontrol", "update", f"jobid={job}", "StartTime=now+2")  # else Slurm holds it for minutes
    _, done = goes_on(lab, tmp_path, run_id)
    assert (done[1][1] == job, [seen["name"] for seen in lab.outstanding()] == [machine["name"]]) == (
        same,
        same,
    )
    assert any(reason.startswith("PREEMPTED") for reason in lab.ended_reasons()) is not same


@pytest.mark.fault("4.9")
def test_a_signal_that_slurm_sends_some_time_before_the_end_gives_a_run_back_in_time(
    lab: Lab, tmp_path: Path
) -> None:
    """By Slurm's own timer, long before the worker itself would leave, which knows when its time is up."""
    options = ["--partition=main", "--mem=200M", "--time=2", "--signal=B:TERM@100"]
    lab.configure(profile={"sbatch": options})
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    at_work = lab.deployment.attempts(run_id)[0]["worker"]  # others may be coming, or going yet
    worker = lab.deployment.get(f"/workers/{at_work}")
    eventually(lambda: len(lab.deployment.attempts(run_id)) == 2, 90, "Slurm has sent its signal")
    first = lab.deployment.attempts(run_id)[0]
    assert first["outcome"] == "stopped"
    assert worker["reported"]["ends_at"] - first["ended_at"] > 65
    _, done = goes_on(lab, tmp_path, run_id)
    assert done[1][1] != job


@pytest.mark.fault("4.13")
def test_a_server_killed_while_a_machine_is_pending_goes_on_with_it(lab: Lab) -> None:
    lab.configure(profile={"sbatch": ["--partition=main", "--mem=200M", "--begin=now+3600"]})
    deployment = lab.deployment.start()
    run_id = deployment.start_run("visit")
    eventually(lambda: [m for m in lab.outstanding() if m["state"] == "pending"], what="it is pending")
    (machine,) = lab.outstanding()
    eventually(lambda: "Slurm job" in str(deployment.get(f"/runs/{run_id}/why")["calls"]), what="why says so")
    deployment.server.kill()
    deployment.restart()
    assert [m["name"] for m in lab.outstanding()] == [machine["name"]]
    lab.slurm.ask("scontrol", "update", f"jobid={machine['job'].split()[-1]}", "StartTime=now")
    deployment.wait_for_run(run_id, "completed", within_s=60)
    assert len([job for job in lab.slurm.jobs("all") if job[1].startswith(machine["name"][:9])]) >= 1


@pytest.mark.fault("4.5")
def test_a_controller_that_is_away_loses_no_machine(lab: Lab, tmp_path: Path) -> None:
    lab.configure(command_timeout_s=3)
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    lab.slurm.end("slurmctld")
    said = "Unable to contact slurm controller|did not end within|Connection refused"
    eventually(lambda: re.search(said, lab.trouble()), 60, "the error is shown")
    assert lab.outstanding()[0]["state"] == "attached"
    lab.slurm.start_controller()
    eventually(lambda: lab.trouble() == "", 90, "all is well again")
    (tmp_path / "gate").write_text("")
    lab.deployment.wait_for_run(run_id, "completed")
    assert [where for _, where in steps(tmp_path)] == [job, job]


@pytest.mark.fault("4.7")
def test_the_node_of_a_machine_dies_and_its_run_goes_on_elsewhere(lab: Lab, tmp_path: Path) -> None:
    lab.configure(profile={"sbatch": ["--mem=200M", "--no-requeue", "--partition=main"]})
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    node = lab.slurm.ask("squeue", "-h", "-j", job, "-o", "%N")
    lab.slurm.kill_node(node, job)
    lab.slurm.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=dead")
    try:
        said = "lost machine 1 of 5 that cost nothing: worker went away mid-call"
        why = f"/runs/{run_id}/why"
        eventually(lambda: said in lab.deployment.get(why)["message"], 60, "it counts as no crash")
        _, done = goes_on(lab, tmp_path, run_id)
        assert done[1][1] != job
        assert any(reason.startswith("NODE_FAIL") for reason in lab.ended_reasons())
    finally:
        lab.slurm.start_node(node)


def test_prerun_that_fails_is_told_and_provisioners_test_says_it(lab: Lab) -> None:
    lab.configure()
    deployment = lab.deployment.start()
    checks = deployment.post("/provisioners/hpc/test", {"submit": True})["items"]
    assert [check["ok"] for check in checks] == [True] * 4
    assert checks[-1]["said"].endswith("COMPLETED")
    lab.configure(profile={"sbatch": ["--partition=gpu", "--mem=200M", "--time=02:00:00"]}, max_idle_s=4)
    eventually(
        lambda: deployment.get("/provisioners")["provisioners"][0]["max_idle_s"] == 4, what="it is taken"
    )
    long = deployment.post("/provisioners/hpc/test", {"submit": True})["items"]
    assert not long[-1]["ok"], "more time than the partition gives"
    assert "PartitionTimeLimit" in long[-1]["said"]
    lab.configure(profile={"prerun": ["module load cuda/99"]}, max_idle_s=3)
    eventually(
        lambda: deployment.get("/provisioners")["provisioners"][0]["max_idle_s"] == 3, what="it is taken"
    )
    run_id = deployment.start_run("visit")
    said = "prerun failed: line 1: module load cuda/99"
    eventually(lambda: said in lab.trouble(), 60, "what went wrong is shown")
    assert said in str(deployment.get(f"/runs/{run_id}/why")["calls"])


@pytest.mark.fault("4.9")
def test_before_its_time_is_up_a_machine_is_drained_and_its_run_goes_on_elsewhere(
    lab: Lab, tmp_path: Path
) -> None:
    """B083: the worker knows the end of its allocation, and is gone before it."""
    lab.configure(profile={"prerun": ["export SLURM_JOB_END_TIME=$(($(date +%s) + 24))"]})
    lab.deployment.start()
    run_id, job = begun(lab, tmp_path)
    ends = lab.deployment.items("/workers")
    assert next(w["reported"]["ends_at"] for w in ends if w["name"].startswith("hpc-")) > time.time()
    eventually(lambda: len(lab.deployment.attempts(run_id)) == 2, 60, "its engines are ended in time")
    assert lab.deployment.attempts(run_id)[0]["outcome"] == "stopped"
    eventually(lambda: job not in [id for id, _, _ in lab.slurm.jobs()], 30, "the job has ended by itself")
    assert (job, "COMPLETED") in [(id, state) for id, _, state in lab.slurm.jobs("all")]
    goes_on(lab, tmp_path, run_id)
