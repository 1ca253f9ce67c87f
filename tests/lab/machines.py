"""A server whose project asks a real Slurm for machines, through a real ssh."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from farhand_worker.protocol import Times
from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually
from tests.lab.slurm import Slurm
from tests.lab.sshd import Sshd

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


@task(device="cluster")
def bulk(size: int) -> str:
    return "x" * size


@flow(runs_on="server")
def fetch(size: int) -> int:
    return len(bulk(size))


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
        self.deployment = Deployment(directory, project=self.project, parallel=1, times=Times().scaled(0.5))

    def configure(self, **fields: Any) -> None:
        """Write provisioners.json."""
        profile = {
            "name": "small",
            "labels": ["cluster"],
            "cpus": 1,
            "sbatch": ["--partition=main", "--mem=200M"],
            "prerun": [f"cd {self.project}", "export FROM_PRERUN='it was run'"],
            "worker": [sys.executable, "-m", "farhand_worker"],
        }
        profile.update(fields.pop("profile", {}))
        profile["sbatch"] = [*profile["sbatch"], f"--chdir={self.project.parent}"]
        settings = {
            "type": "slurm",
            "name": "hpc",
            "login": self.sshd.login,
            "ssh_key": str(self.sshd.key),
            "ssh_options": self.sshd.options,
            "engine_url": self.deployment.url,
            "max_idle_s": 2,
            "poll_s": 0.6,
            "profiles": [profile],
            **fields,
        }
        settings = {name: value for name, value in settings.items() if value is not None}
        (self.project / "provisioners.json").write_text(json.dumps([settings]))

    def close(self) -> None:
        """Stop the server in order, which ends its ssh connections, then clear away what is left."""
        server = self.deployment.server
        if server.process is not None and server.process.poll() is None:
            server.send(signal.SIGTERM)
            server.wait(60)
        self.deployment.clear()

    def outstanding(self) -> list[dict[str, Any]]:
        """The machines that have not ended, as the API shows them."""
        return self.deployment.get("/workers/resources")["provisions"]["machines"]

    def trouble(self) -> str:
        """What last went wrong with the provisioner."""
        return self.deployment.get("/provisioners")["provisioners"][0]["trouble"]

    def ended_reasons(self) -> list[str]:
        """Why the machines that ended last did."""
        return [
            m["reason"] for m in self.deployment.get("/provisioners")["machines"] if m["state"] == "ended"
        ]


def begun(lab: Lab, directory: Path) -> tuple[str, str]:
    """A run on a machine, beyond its first checkpoint: its id, and the Slurm job."""
    deployment = lab.deployment
    run_id = deployment.start_run("climb", path=str(directory / "steps"), gate=str(directory / "gate"))
    deployment.wait_for_run(run_id, "running", within_s=60)
    (first,) = eventually(lambda: steps(directory), what="the first step is done")
    return run_id, first[1]


def steps(directory: Path) -> list[list[str]]:
    path = directory / "steps"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def goes_on(lab: Lab, directory: Path, run_id: str) -> tuple[dict[str, Any], list[list[str]]]:
    """The run once it has completed; its first step was not executed again, and no budget was used."""
    eventually(lambda: len(lab.deployment.attempts(run_id)) == 2, 60, "there is another attempt")
    (directory / "gate").write_text("")
    run = lab.deployment.wait_for_run(run_id, "completed", within_s=60)
    done = steps(directory)
    assert [number for number, _ in done] == ["1", "2"]
    (job,) = [attempt for attempt in lab.deployment.attempts(run_id) if attempt["number"] == 2]
    assert job["outcome"] == "completed"
    return run, done
