"""What the code of a job says of each worker: the candidates of placement, with the reason against each."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from farhand_worker import protocol

from ..model import SERVICE, Ask, Flow, Job, Json
from ..placement import Candidate, Refusal
from ..store.changes import Unfit
from ..suitability import name_files, python_fits, refusal, travels
from .fleet import Fleet
from .importchecks import ImportChecks, code_of
from .member import OFFLINE, Member
from .queue import Queue
from .service import Wakeup

log = logging.getLogger("farhand")

ARGUMENTS, MISSING = "arguments_do_not_load", "code_missing"
_JOBS_MAX = 10_000

ENDS_S = 30.0
"""A worker ends its engines so long before its machine is taken away."""


@dataclass(frozen=True, slots=True)
class FlowCode:
    """What a worker has of a flow's code. ``state``: ready, unchecked, or a code of `suitability.REASONS`.

    ``files`` are those in which its checkout differs.
    """

    flow: str
    fingerprint: str
    state: str
    message: str
    files: tuple[str, ...] = ()


class Fitness:
    """Knows, for a job and a worker, what of the job's code is against it."""

    def __init__(self, fleet: Fleet, imports: ImportChecks, queue: Queue, wakeup: Wakeup) -> None:
        self.imports = imports
        self._fleet = fleet
        self._queue = queue
        self._wakeup = wakeup
        self._arguments: dict[str, dict[str, Unfit]] = {}
        self._flows: frozenset[str] = frozenset()

    def candidates(self, job: Job) -> list[Candidate]:
        """The workers the job could be placed on, now or soon, each with what its code has against it."""
        return [
            replace(member.candidate, against=self.against(job, member))
            for member in self._fleet
            if member.state != OFFLINE
        ]

    def against(self, job: Job, member: Member) -> Refusal | None:
        """The first reason against a worker, those that need no asking before those that do."""
        special = job.ask.requires_python or member.checkout or member.ends_at is not None
        of_machine = self._of_machine(job, member) if special else None
        if job.kind == SERVICE:  # nothing of it is imported
            return _hosting(member) or of_machine
        of_job = of_machine or (self._arguments_of(job, member) if self._arguments else None)
        return of_job or self.imports.against(code_of(job), member)

    def _of_machine(self, job: Job, member: Member) -> Refusal | None:
        return (
            self._python(job.ask, member)
            or _time(job, member)
            or self._checkout(job.entry, job.fingerprint, member)
        )

    def offered(self, inspected: list[str], present: list[str]) -> None:
        """A project was taken: what the server itself has imported of it, and what all flows now are of."""
        self.imports.inspected(inspected)
        self.flows(present)

    def flows(self, fingerprints: Iterable[str]) -> None:
        """These are what the server's flows are of: workers with a checkout say which of them they have."""
        self._flows = frozenset(fingerprints)
        for member in self._fleet:
            self.ask_checkout(member)

    def ask_checkout(self, member: Member, more: Iterable[str] = ()) -> None:
        """Ask a worker for the fingerprints that it was not asked for yet, all of them anew."""
        asked = frozenset(more)
        wanted = self._flows | asked | (member.compared if asked else frozenset())
        if member.checkout and member.link is not None and wanted - member.compared:
            member.compared = wanted
            member.link.send(protocol.Compare(sorted(wanted)))

    def checkout_changed(self, member: Member) -> None:
        """What a worker has checked out is known anew. One that can run no flow is worth saying."""
        ours = self._flows & member.differs.keys()
        if ours and all(member.differs[fingerprint] for fingerprint in ours):
            log.warning(
                "worker %s can run none of the flows here: its checkout %s %s",
                member.name,
                member.checkout,
                self.drift(member.name),
            )

    def drift(self, worker: str) -> str:
        """In which files a worker's checkout differs from what the flows are of; empty where it does not."""
        member = self._fleet.get(worker)
        if member is None or not member.checkout:
            return ""
        files = {file for name in self._flows & member.differs.keys() for file in member.differs[name]}
        return f"differs in {name_files(sorted(files))}" if files else ""

    def code_of(self, worker: str, flows: Iterable[Flow]) -> list[FlowCode]:
        """What a worker has of each flow, as far as it is known."""
        member = self._fleet.get(worker)
        return [] if member is None else [self._code_of(member, flow) for flow in flows if flow.present]

    def _code_of(self, member: Member, flow: Flow) -> FlowCode:
        code = (flow.fingerprint, flow.entry.partition(":")[0])
        against = (
            self._python(flow.ask, member)
            or self._checkout(flow.entry, flow.fingerprint, member)
            or self.imports.against(code, member)
        )
        files = member.differs.get(flow.fingerprint, ()) if member.checkout else ()
        if against is None:
            return FlowCode(flow.name, flow.fingerprint, "ready", "")
        state = "unchecked" if against.code == "import_check" else against.code
        return FlowCode(flow.name, flow.fingerprint, state, against.message, files)

    def look_into(self, job: Job, refusals: Iterable[Refusal]) -> None:
        """Find out what is not known yet."""
        for each in refusals:
            member = self._fleet.get(each.worker)
            if each.code == "checkout_unknown" and member is not None:
                self.ask_checkout(member, [job.fingerprint])
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

    def _python(self, ask: Ask, member: Member) -> Refusal | None:
        asked = ask.requires_python
        if not asked or python_fits(asked, member.python):
            return None
        return refusal(member.name, "requires_python", f"has Python {member.python}, and it needs {asked}")

    def _checkout(self, entry: str, fingerprint: str, member: Member) -> Refusal | None:
        if not member.checkout or not fingerprint or travels(entry):
            return None
        files = member.differs.get(fingerprint)
        if files is None:
            return refusal(member.name, "checkout_unknown", "has not compared its checkout with it yet")
        if not files:
            return None
        return refusal(member.name, "checkout_differs", f"has a checkout that differs in {name_files(files)}")

    def _arguments_of(self, job: Job, member: Member) -> Refusal | None:
        unfit = self._arguments.get(job.id, {}).get(member.name)
        if unfit is None:
            return None
        return refusal(member.name, ARGUMENTS, f"cannot load its arguments: {unfit.message}")


def _time(job: Job, member: Member) -> Refusal | None:
    """A job that may take longer than its machine is there is not begun on it; one without timeout is."""
    timeout_s = job.settings.timeout_s
    if member.ends_at is None or timeout_s is None:
        return None
    left_s = max(0.0, member.ends_at - ENDS_S - time.time())
    if timeout_s <= left_s:
        return None
    message = f"has its machine for {left_s:.0f} s more, and it may take {timeout_s:g} s"
    return refusal(member.name, "ends_too_soon", message)


def checked_out(flows: Iterable[Flow]) -> list[str]:
    """The fingerprints of the flows there are that workers may have in a checkout."""
    return [flow.fingerprint for flow in flows if flow.present and not travels(flow.entry)]


def _hosting(member: Member) -> Refusal | None:
    if member.hosts:
        return None
    return refusal(
        member.name, "hosts_none", "is a worker that keeps no services; upgrade farhand-worker there"
    )
