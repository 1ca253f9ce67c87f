"""Machines from a real Slurm, through a real ssh."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually
from tests.lab.slurm import Slurm, cluster
from tests.lab.sshd import Sshd, login_node

FLOWS = """\
import os
import time
from pathlib import Path

from farhand import flow, task


@task(device="cluster")
def there() -> str:
    return os.environ["SLURM_JOB_ID"]


@flow(runs_on="server")
def visit() -> str:
    return there()


@task
def step(path: str, number: int) -> int:
    with open(path, "a") as file:
        file.write(f"{number} {os.environ['SLURM_JOB_ID']}\\n")
    return number


@flow(device="cluster")
def climb(path: str, gate: str) -> int:
    first = step(path, 1)
    while not Path(gate).exists():
        time.sleep(0.02)
    return first + step(path, 2)
"""


class Lab:
    """A server whose project asks a Slurm for machines."""

    def __init__(self, directory: Path, slurm: Slurm, sshd: Sshd) -> None:
        self.slurm = slurm
        self.project = directory / "project"
        self.project.mkdir()
        (self.project / "flows.py").write_text(FLOWS)
        self.sshd = sshd
        self.deployment = Deployment(directory, project=self.project, parallel=1)

    def configure(self, **fields: Any) -> None:
        """Write provisioners.json."""
        profile = {
            "name": "small",
            "labels": ["cluster"],
            "cpus": 1,
            "sbatch": ["--partition=main", "--mem=200M", "--chdir=/tmp"],
            "prerun": [f"cd {self.project}", "export FROM_PRERUN='it was run'"],
            "worker": [sys.executable, "-m", "farhand_worker"],
        }
        profile.update(fields.pop("profile", {}))
        settings = {
            "type": "slurm",
            "name": "hpc",
            "login": self.sshd.login,
            "ssh_key": str(self.sshd.key),
            "ssh_options": self.sshd.options,
            "engine_url": self.deployment.url,
            "max_idle_s": 2,
            "poll_s": 0.3,
            "profiles": [profile],
            **fields,
        }
        (self.project / "provisioners.json").write_text(json.dumps([settings]))

    def outstanding(self) -> list[dict[str, Any]]:
        """The machines that have not ended, as the API shows them."""
        return self.deployment.get("/workers/resources")["machines"]


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
        stack.callback(made.deployment.clear)
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
