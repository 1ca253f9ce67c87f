"""Calls that a transaction places, written together: those that get a worker at once with their leases."""

from __future__ import annotations

from ..model import Job, TaskRun
from .guard import Connection
from .rows import JOBS, TASK_RUNS
from .seeds import adopt


class Placements:
    """What is to be written of calls that were asked for. Whoever reads of them has to `flush` first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._jobs: dict[tuple[str, str], Job] = {}
        self._tasks: list[TaskRun] = []
        self._adopting: list[Job] = []
        self._retrying = set[str]()

    def add(self, job: Job, task: TaskRun, retrying: bool) -> None:
        """Place a call. ``retrying``: its run retries another, and may have taken over what it had called."""
        self._jobs[job.run, job.key] = job
        self._tasks.append(task)
        if retrying:
            self._adopting.append(job)
            self._retrying.add(job.run)

    def retries(self, run: str) -> bool:
        """Whether a run that has placed calls here retries another."""
        return run in self._retrying

    def lease(self, job: Job) -> bool:
        """Have a call written as it is now, handed to a worker; False when it is written already."""
        waiting = (job.run, job.key) in self._jobs
        if waiting:
            self._jobs[job.run, job.key] = job
        return waiting

    def flush(self) -> None:
        """Write what has gathered."""
        if not self._jobs:
            return
        jobs, self._jobs = self._jobs, {}
        tasks, self._tasks = self._tasks, []
        adopting, self._adopting = self._adopting, []
        self._connection.executemany(JOBS.insert, [JOBS.dump(job) for job in jobs.values()])
        rows = [TASK_RUNS.dump(_handed_over(task, jobs[task.run, task.key])) for task in tasks]
        self._connection.executemany(TASK_RUNS.insert, rows)
        for job in adopting:
            adopt(self._connection, job.run, job.key, job.id)


def _handed_over(task: TaskRun, job: Job) -> TaskRun:
    """The task run of a call, with the worker that it was handed to."""
    if job.worker is None:
        return task
    return TASK_RUNS.changed(task, {"worker": job.worker, "attempts": job.attempt})
