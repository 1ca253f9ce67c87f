"""The workers as this server sees them now: their links, what each holds, and when each was last heard.

In memory only. After a start it knows, from the store, who held what; until such a worker comes back its
member has no link. Renewals are dated by this process's monotonic clock and never stored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from farhand_worker import protocol

from ..model import Ask, Job
from ..placement import Candidate, Kin, refuse_ever
from .member import OFFLINE, Holding, Member


class Fleet:
    """Every worker that the server remembers."""

    def __init__(self, times: protocol.Times) -> None:
        self.times = times
        self.began_at = 0.0
        """Since when workers that have not come back are waited for (monotonic seconds)."""
        self._members: dict[str, Member] = {}
        self._holders: dict[str, tuple[Member, Holding]] = {}
        self._runs_of: Counter[str] = Counter()
        self._able: dict[Ask, list[Member]] = {}
        self._blocked: set[Member] = set()
        self._readers: dict[str, Counter[str]] = {}
        self._stirred: set[Member] = set()
        self.running_ahead: set[Member] = set()
        """The workers on which something waits behind another."""

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def get(self, name: str) -> Member | None:
        """The member of that name, if there is one."""
        return self._members.get(name)

    def member(self, name: str) -> Member:
        """The member of that name, made if there is none."""
        known = self._members.get(name)
        if known is None:
            known = self._members[name] = Member(name).watched(self._able.clear, self._stirred.add)
            self._able.clear()
        return known

    def forget(self, name: str) -> None:
        """Have no member of that name any more."""
        member = self._members.pop(name, None)
        if member is not None:
            self._stirred.discard(member)
        self._able.clear()

    def candidates(self) -> list[Candidate]:
        """The workers a job could be placed on, now or soon."""
        return [member.candidate for member in self._members.values() if member.state != OFFLINE]

    def able(self, ask: Ask) -> list[Member]:
        """The workers that could take a job that asks so, if they had room. Kept until a worker changes."""
        found = self._able.get(ask)
        if found is None:
            found = self._able[ask] = [
                member
                for member in self._members.values()
                if member.state != OFFLINE and refuse_ever(ask, member.candidate) is None
            ]
        return found

    def with_room(self) -> Iterator[Member]:
        """The workers that take work and have a free slot. Those that had none when this was asked last, and
        to which nothing has happened since, are not looked at again."""
        for member in list(self._stirred):
            if member.takes_work and member.candidate.room > 0:
                yield member
            else:
                self._stirred.discard(member)

    def given_back(self) -> set[str]:
        """The workers with a free slot that a blocked run has given back and no call has taken since."""
        return {
            member.name
            for member in self._blocked
            if member.candidate.room > 0 and member.calls_running < len(member.candidate.blocked)
        }

    @property
    def blocks(self) -> bool:
        """Whether any job that is held is blocked, or was and has no slot yet."""
        return bool(self._blocked)

    def unblocked(self) -> list[tuple[Member, Job]]:
        """The jobs that would go on and have no slot yet, those that began first at the beginning."""
        found = [
            (member, holding.job)
            for member in self._blocked
            for holding in member.holdings.values()
            if holding.job.blocked == "unblocked" and holding.job.id not in member.promises
        ]
        return sorted(found, key=lambda pair: (-pair[1].priority, pair[1].age_at, pair[1].id))

    def kin_of(self, job: Job) -> tuple[Kin, ...]:
        """The ancestors of a placed call that are live, the nearest first."""
        kin: list[Kin] = []
        parent = job.parent_job
        while parent is not None and (held := self._holders.get(parent)) is not None:
            kin.append(held[1].kin_on(held[0]))
            parent = held[1].job.parent_job
        return tuple(kin)

    def beside(self, job: Job) -> tuple[Kin, ...]:
        """The jobs of a run that wait for values of a stream, if all of the run that is handed over waits."""
        readers = self._readers.get(job.run)
        if not readers or any(member.promises for member in self._members.values()):
            return ()
        here = [held for held in self._holders.values() if held[1].job.run == job.run]
        if any(holding.job.blocked != "blocked" for _, holding in here):
            return ()
        return tuple(holding.kin_on(member) for member, holding in here if readers[holding.job.id])

    @contextmanager
    def reading(self, run: str, job_id: str) -> Generator[bool]:
        """A job waits for values of a stream; whether nothing else of it goes on."""
        readers = self._readers.setdefault(run, Counter())
        readers[job_id] += 1
        held = self._holders.get(job_id)
        try:
            yield held is not None and held[1].job.blocked == "blocked"
        finally:
            readers[job_id] -= 1
            if not +readers:
                self._readers.pop(run, None)

    def hold(self, member: Member, job: Job, lease: int) -> None:
        """Record that ``member`` holds ``lease`` on ``job``."""
        earlier = self._holders.get(job.id)
        if earlier is not None:
            self._forget(*earlier)
        if earlier is not None and earlier[1].lease == lease:
            holding = replace(earlier[1], job=job)
        else:
            since = None if job.started_at is None else time.monotonic()
            holding = Holding(job, lease, since, since)
        member.hold(holding)
        self._holders[job.id] = (member, holding)
        if job.kind == "run":
            self._runs_of[job.flow] += 1
        if job.blocked:
            self._note_blocked(member)
        if job.behind is not None:
            self.running_ahead.add(member)

    def changed(self, job: Job) -> None:
        """A job that is held counts otherwise now: it is blocked, or goes on."""
        held = self._holders.get(job.id)
        if held is not None and held[1].lease == job.lease:
            if held[1].job.blocked and not job.blocked and held[1].reported_at is not None:
                held[1].reported_at = time.monotonic()  # its wait for the slot was no silence
            held[1].job = job
            held[0].hold(held[1])
            self._note_blocked(held[0])

    def _note_blocked(self, member: Member) -> None:
        if member.candidate.blocked:
            self._blocked.add(member)
        else:
            self._blocked.discard(member)

    def is_news(self, job_id: str, lease: int) -> bool:
        """Whether the end of a lease lets anybody go on: what it took was given away when it was reported.

        A limit of its flow counts until the end is recorded.
        """
        held = self._holders.get(job_id)
        if held is None or held[1].lease != lease or lease not in held[0].parting:
            return True
        return held[1].job.settings.max_concurrent is not None

    def release(self, job_id: str, lease: int) -> Member | None:
        """Forget a lease that ended; returns who held it."""
        held = self._holders.get(job_id)
        if held is None or held[1].lease != lease:
            return None
        del self._holders[job_id]
        self._forget(*held)
        return held[0]

    def _forget(self, member: Member, holding: Holding) -> None:
        member.drop(holding.lease)
        if holding.job.blocked:
            self._note_blocked(member)
        if holding.job.behind is not None and not member.waiting:
            self.running_ahead.discard(member)
        if holding.job.kind == "run":
            self._runs_of[holding.job.flow] -= 1

    def reported(self, job_id: str, lease: int, now: float, started: bool) -> bool:
        """A report was recorded at ``now`` (monotonic); whether anything waits for this job's reports."""
        held = self._holders.get(job_id)
        if held is None or held[1].lease != lease:
            return False
        holding = held[1]
        if holding.job.settings.timeout_s is None and holding.job.settings.silence_timeout_s is None:
            return False
        holding.reported_at = now
        if started:
            holding.started_at = now
        return started

    def running_of(self, flow: str) -> int:
        """How many runs of a flow are handed over."""
        return self._runs_of[flow]

    def holder(self, job_id: str) -> tuple[Member, Holding] | None:
        """Who holds ``job_id`` now."""
        return self._holders.get(job_id)

    def expires_at(self, member: Member, holding: Holding | None) -> float:
        """When what a worker holds is surely over unless it is heard again (monotonic seconds)."""
        times = self.times
        if member.heard_at is not None:
            return member.heard_at + times.lease_s + times.margin_s
        strict = holding is not None and holding.strict
        return self.began_at + (times.lease_s + times.margin_s if strict else times.reattach_s)

    def send_to_holder(
        self, job_id: str, make: Callable[[int], Any], over: Container[tuple[str, int]] = ()
    ) -> None:
        """Send ``make(lease)`` to whoever holds the job, if it is connected; a reattach sends it again.

        ``over`` are leases that have ended and are still counted.
        """
        held = self._holders.get(job_id)
        if held is not None and held[0].link is not None and (job_id, held[1].lease) not in over:
            held[0].link.send(make(held[1].lease))
