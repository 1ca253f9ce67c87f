"""What follows from a commit: `Changes` carried to the queue, the fleet, the dispatcher and the watchers."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from farhand_worker import protocol

from ..model import Job, Run
from ..store.answers import Answer
from ..store.changes import Changes, PlacedOutcome
from .bus import Bus, Notice
from .fitness import Fitness
from .fleet import Fleet
from .member import Member
from .queue import Queue
from .service import Wakeup
from .turn import Turn

C = TypeVar("C", Changes, Changes | None)


class Consequences:
    """Follows changes up, in memory and on the wire. Every method is synchronous: nothing overtakes it."""

    def __init__(
        self,
        queue: Queue,
        fleet: Fleet,
        bus: Bus,
        wakeup: Wakeup,
        fitness: Fitness | None = None,
        turn: Turn | None = None,
    ) -> None:
        self.turn = turn or Turn()
        self._fitness = fitness
        self._queue = queue
        self._fleet = fleet
        self._bus = bus
        self._wakeup = wakeup

    def reconsider(self, member: Member) -> None:
        """A worker is lost, offline or back: what waits may go elsewhere or waits for another reason, and
        whoever watches the runs that have something there looks again."""
        self._wakeup.set()
        for run in dict.fromkeys(holding.job.run for holding in member.holdings.values()):
            self._bus.publish(Notice("run", run))

    def expect_start(self, job: Job) -> None:
        """A run is being stored, and its job is queued already: taking it shares the commit, or comes later.

        Whoever takes a job asks the store for its lease, and gets none where the run was not stored.
        """
        self._add(job, self._queue.steady.now())
        if self._queue.is_news(job):
            self._wakeup.set()

    def follow_start(self, run: Run, job: Job) -> None:
        """A run was queued."""
        self.expect_start(job)
        self.tell_start(run)

    def tell_start(self, run: Run) -> None:
        """A run whose job was queued while it was stored is stored."""
        self._bus.publish(Notice("run", run.id, run))

    def forget_start(self, job: Job) -> None:
        """The run could not be stored."""
        self._queue.remove(job.id)

    def of(self, answer: Answer[C]) -> Answer[C]:
        """Follow what is being committed once it is, also where whoever asked for it has given up by then."""

        def follow(committed: Answer[C]) -> C:
            changes = committed.result()
            if changes is not None:
                self.follow(changes)
            return changes

        return answer.then(follow)

    def follow(self, changes: Changes) -> None:
        """Act on one commit's changes: workers are told first, and go on meanwhile."""
        if changes.cancel or changes.outcomes:
            self._tell_workers(changes)
        self.turn.afterwards(partial(self._follow_up, changes))

    def _tell_workers(self, changes: Changes) -> None:
        """Send what is for jobs that are held, and whose leases have not just ended."""
        over = {(job_id, lease) for job_id, lease, _ in changes.released}
        for job in changes.cancel:
            self._fleet.send_to_holder(job.id, partial(protocol.Cancel, job.id), over)
        for ended in changes.outcomes:
            self._fleet.send_to_holder(ended.parent_job, partial(_outcome, ended), over)

    def _follow_up(self, changes: Changes) -> None:
        now = self._queue.steady.now()
        news = bool(changes.enqueued or changes.dequeued or changes.blocked)
        for job_id, lease, _ in changes.released:
            news |= self._fleet.is_news(job_id, lease)
            self._fleet.release(job_id, lease)
            self._queue.relane(job_id, now)
        for job_id in changes.dequeued:
            self._queue.remove(job_id)
        if self._fitness is not None and (changes.unfit or changes.released or changes.dequeued):
            self._learn(self._fitness, changes)
        if changes.enqueued:
            self._queue.add_all(map(self._queue.steady.of, changes.enqueued), now)
        for job in changes.blocked:
            self._fleet.changed(job)
        if news:
            self._wakeup.set()
        for run in changes.runs:
            self._bus.publish(Notice("run", run.id, run))
        for name in changes.services:
            self._bus.publish(Notice("service", record=name))
        for run_id in changes.streams:
            self._bus.publish(Notice("logs", run_id))

    def _add(self, job: Job, now: float) -> None:
        self._queue.add(self._queue.steady.of(job), now)

    @staticmethod
    def _learn(fitness: Fitness, changes: Changes) -> None:
        """What workers could not do counts before their jobs are looked at again."""
        for unfit in changes.unfit:
            fitness.note(unfit)
        again = {job.id for job in changes.enqueued}
        for job_id, _, _ in changes.released:
            if job_id not in again:
                fitness.forget(job_id)
        for job_id in changes.dequeued:
            if job_id not in again:
                fitness.forget(job_id)


def _outcome(ended: PlacedOutcome, lease: int) -> protocol.Outcome:
    return protocol.Outcome(ended.parent_job, lease, ended.key, ended.body)
