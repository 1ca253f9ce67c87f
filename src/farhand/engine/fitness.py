"""What the code of a job says of each worker: the candidates of placement, with the reason against each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..model import Job, Json
from ..placement import Candidate, Refusal
from ..store.changes import Unfit
from ..suitability import python_fits, refusal
from .fleet import OFFLINE, Fleet, Member
from .importchecks import ImportChecks
from .queue import Queue
from .service import Wakeup

ARGUMENTS, MISSING = "arguments_do_not_load", "code_missing"
_JOBS_MAX = 10_000


class Fitness:
    """Knows, for a job and a worker, what of the job's code is against it."""

    def __init__(self, fleet: Fleet, imports: ImportChecks, queue: Queue, wakeup: Wakeup) -> None:
        self.imports = imports
        self._fleet = fleet
        self._queue = queue
        self._wakeup = wakeup
        self._arguments: dict[str, dict[str, Unfit]] = {}

    def candidates(self, job: Job) -> list[Candidate]:
        """The workers the job could be placed on, now or soon, each with what its code has against it."""
        return [
            replace(member.candidate, against=self.against(job, member))
            for member in self._fleet
            if member.state != OFFLINE
        ]

    def against(self, job: Job, member: Member) -> Refusal | None:
        """The first reason against a worker, those that need no asking before those that do."""
        return (
            self._python(job, member) or self._arguments_of(job, member) or self.imports.against(job, member)
        )

    def look_into(self, job: Job, refusals: Iterable[Refusal]) -> None:
        """Find out what is not known yet."""
        self.imports.look_into(job, refusals)

    def error(self, job: Job, last: Refusal) -> Json | None:
        """The exception behind a refusal."""
        if last.code == ARGUMENTS:
            return self._arguments[job.id][last.worker].error
        return self.imports.error(job, last.worker)

    def note(self, unfit: Unfit) -> None:
        """A worker had the job and could not begin with it; the job is about to be queued again."""
        if unfit.reason == MISSING:
            self.imports.note_missing(unfit.job, unfit.worker, unfit.message, unfit.error)
            return
        self._arguments.setdefault(unfit.job.id, {})[unfit.worker] = unfit
        self._queue.set_apart(unfit.job.id)
        for oldest in list(self._arguments)[:-_JOBS_MAX]:
            self.forget(oldest)

    def forget(self, job_id: str) -> None:
        """The job is over."""
        self._arguments.pop(job_id, None)
        self._queue.rejoin(job_id)

    def environment_changed(self, worker: str, digest: str) -> None:
        """Something was installed on a worker, or removed."""
        for workers in self._arguments.values():
            workers.pop(worker, None)
        self.imports.environment_changed(worker, digest)

    def _python(self, job: Job, member: Member) -> Refusal | None:
        asked = job.ask.requires_python
        if not asked or python_fits(asked, member.python):
            return None
        return refusal(member.name, "requires_python", f"has Python {member.python}, and it needs {asked}")

    def _arguments_of(self, job: Job, member: Member) -> Refusal | None:
        unfit = self._arguments.get(job.id, {}).get(member.name)
        if unfit is None:
            return None
        return refusal(member.name, ARGUMENTS, f"cannot load its arguments: {unfit.message}")
