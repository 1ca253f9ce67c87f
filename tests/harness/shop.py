"""A server and one worker whose runs have a step left to do, for tests of what that survives."""

from __future__ import annotations

from pathlib import Path

from .deployment import TERMINAL, Deployment, WorkerProgram
from .proxy import Proxy
from .waiting import eventually
from .witnesses import words


class Shop:
    """One server and one worker, the worker behind ``link`` where there is one."""

    def __init__(self, deployment: Deployment, link: Proxy | None = None) -> None:
        self.deployment = deployment
        self.link = link
        url = deployment.url if link is None else link.url
        self.worker: WorkerProgram = deployment.worker("box", url=url, parallel=50)

    def whole(self) -> None:
        """The worker is there and idle, whatever the test before did to it."""
        if self.link is not None:
            self.link.heal(reset=False)
        for run in self.deployment.items("/runs", limit=200):
            if run["state"] not in TERMINAL:
                self.deployment.post(f"/runs/{run['id']}/cancel")
        self.deployment.wait_for_worker("box", "online", within_s=40)

    def working(self, directory: Path) -> Work:
        """A run on the worker that has finished two of its three steps and waits for its gate."""
        work = Work(self.deployment, directory)
        eventually(lambda: words(work.witness)["step2"], what="two steps are done")
        eventually(
            lambda: len(self.deployment.items(f"/runs/{work.id}/tasks")) >= 2, what="both are recorded"
        )
        return work


class Work:
    """One such run."""

    def __init__(self, deployment: Deployment, directory: Path) -> None:
        self._deployment = deployment
        self.witness, self.gate = directory / "witness", directory / "gate"
        self.id = deployment.start_run("checkpointed_there", path=str(self.witness), gate=str(self.gate))

    def ends(self, attempts: int) -> None:
        """Open the gate: it ends well, no step of it was executed twice, and so many attempts were made."""
        self.gate.touch()
        assert self._deployment.wait_for_run(self.id, "completed")["result"] == [1, 2, 3]
        assert words(self.witness) == {"step1": 1, "step2": 1, "step3": 1}
        made = self._deployment.attempts(self.id)
        assert len(made) == attempts, made
