"""Import checks: whether a worker can import what a job needs, asked before the job is handed over.

A check is a job kind of its own that takes no slot. It is harmless to repeat, so it is not stored: a server
that starts again asks again. What came of it is remembered by worker, fingerprint and module, for as long as
the worker's environment stays what it was. A negative is looked into again after a while; so is a module that
took too long to import, which is not the same as one that is missing.

The server's own processors need none for what the server has just inspected with the same interpreter.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from farhand_worker import protocol
from farhand_worker.protocol import IMPORT

from ..errors import StaleLease
from ..model import LOCAL_WORKER, Job, Json
from ..placement import Refusal
from ..suitability import refusal
from .fleet import Fleet
from .member import Member
from .service import Wakeup

log = logging.getLogger("farhand")

TIMEOUT_S = 300.0
AGAIN_S, AGAIN_MOST = 30.0, 20.0
"""After a negative: how long until it is tried again, doubling up to so many times that."""

_NOT_STARTED_S, _NOT_STARTED_S_MAX = 0.25, 30.0
_INSPECTED_MAX = 1000
_STANDINGS_MAX = 20_000
_TOO_SLOW = ("timeout", "silence")
_FOUND = {"missing": "cannot import", "slow": "took too long to import"}

Key = tuple[str, str, str]
"""Worker, fingerprint, module."""


class Conclusion(NamedTuple):
    """What a check has shown. ``state``: ok, missing, slow, or unchecked when it came to nothing."""

    state: str
    message: str = ""
    error: Json | None = None


UNCHECKED = Conclusion("unchecked")


@dataclass(slots=True)
class Standing:
    """What is known of a module on a worker; ``environment`` is that of the check.

    It is looked into again at ``again_at`` (monotonic), ``again_after_s`` after the last failure.
    """

    conclusion: Conclusion = UNCHECKED
    environment: str = ""
    failures: int = 0
    again_at: float = 0.0
    again_after_s: float = 0.0
    check: str | None = None


@dataclass(slots=True)
class Check:
    """One check under way."""

    id: str
    lease: int
    key: Key
    bundle: str
    recorded: dict[str, int] = field(default_factory=dict[str, int])


class ImportChecks:
    """Begins checks, listens to them, and remembers what came of them."""

    def __init__(
        self,
        fleet: Fleet,
        wakeup: Wakeup,
        has_manifest: Callable[[str], bool],
        timeout_s: float = TIMEOUT_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._timeout_s = timeout_s
        self._fleet = fleet
        self._wakeup = wakeup
        self._has_manifest = has_manifest
        self._again_s = again_s
        self._standings: dict[Key, Standing] = {}
        self._checks: dict[str, Check] = {}
        self._inspected: dict[str, None] = {}
        self._lease = 0

    # ------------------------------------------------------------ what is known

    def inspected(self, fingerprints: Iterable[str]) -> None:
        """The server has imported what these stand for, with the interpreter of its own processors."""
        for fingerprint in fingerprints:
            self._inspected.pop(fingerprint, None)
            self._inspected[fingerprint] = None
            for key in [key for key in self._standings if key[:2] == (LOCAL_WORKER, fingerprint)]:
                del self._standings[key]
        for oldest in list(self._inspected)[:-_INSPECTED_MAX]:
            del self._inspected[oldest]

    def against(self, code: tuple[str, str], member: Member) -> Refusal | None:
        """What the imports of a fingerprint's module say against a worker."""
        fingerprint, module = code
        if not fingerprint:
            return None
        standing = self._standings.get((member.name, fingerprint, module))
        if standing is None:
            if member.name == LOCAL_WORKER and fingerprint in self._inspected:
                return None
            return refusal(member.name, "import_check", f"has not imported {module} yet")
        state, message, _ = standing.conclusion
        if state == "ok":
            return None
        if standing.check is not None:
            return refusal(member.name, "import_check", f"is importing {module}")
        if state == "missing" and not _is_due(standing):
            return refusal(member.name, "code_missing", f"cannot import {module}: {message}")
        if state == "slow" and not _is_due(standing):
            again = f"it is tried again after {standing.again_after_s:g} s"
            return refusal(
                member.name, "import_slow", f"took too long to import {module}: {message}; {again}"
            )
        why = f": {message}" if state == "unchecked" and message else ""
        return refusal(member.name, "import_check", f"has yet to import {module}{why}")

    def error(self, job: Job, worker: str) -> Json | None:
        """The exception that importing the job's module raised on a worker."""
        standing = self._standings.get((worker, *code_of(job)))
        return None if standing is None else standing.conclusion.error

    def note_missing(self, job: Job, worker: str, message: str, error: Json | None) -> None:
        """A job that had been handed over could not be imported, whatever was known before."""
        standing = self._standings.setdefault((worker, *code_of(job)), Standing())
        self._conclude(standing, Conclusion("missing", message, error))

    def environment_changed(self, worker: str, digest: str) -> None:
        """Something was installed there, or removed: what was found out before does not count any more."""
        for key, standing in list(self._standings.items()):
            if key[0] == worker and standing.check is None and standing.environment != digest:
                del self._standings[key]
        self._wakeup.set()

    # ------------------------------------------------------------ checks

    def look_into(self, job: Job, refusals: Iterable[Refusal]) -> None:
        """Begin what is missing to know: a check on every worker that only lacks one."""
        for each in refusals:
            member = self._fleet.get(each.worker)
            if each.code == "import_check" and member is not None and member.link is not None:
                self._begin(job, member)

    def _begin(self, job: Job, member: Member) -> None:
        key = (member.name, *code_of(job))
        standing = self._standings.setdefault(key, Standing())
        if standing.check is not None or not _is_due(standing) or member.link is None:
            return
        self._forget_oldest()
        self._lease += 1
        check = Check(f"{IMPORT}-{secrets.token_hex(8)}", self._lease, key, job.bundle)
        self._checks[check.id] = check
        standing.check = check.id
        member.link.send(self._assign(check, job))
        member.link.expect(check.id, check.lease)

    def _assign(self, check: Check, job: Job) -> protocol.Assign:
        settings = {"secrets": job.settings.secrets} if job.settings.secrets else {}
        return protocol.Assign(
            job=check.id,
            lease=check.lease,
            attempt=1,
            kind=IMPORT,
            run="",
            flow=job.flow,
            entry=job.entry,
            args={"enc": "json", "text": "{}"},
            bundle=job.bundle,
            timeout_s=self._timeout_s,
            strict=job.settings.strict_lease,
            settings=settings,
            fingerprint=job.fingerprint if self._has_manifest(job.fingerprint) else "",
        )

    def _forget_oldest(self) -> None:
        """Each change of the code leaves what was known of the code before; some of it may be asked again."""
        for key in list(self._standings)[: max(0, len(self._standings) - _STANDINGS_MAX)]:
            if self._standings[key].check is None:
                del self._standings[key]

    def owns(self, job_id: str) -> bool:
        """Whether the id is one of a check, under way or not."""
        return job_id.startswith(f"{IMPORT}-")

    def is_current(self, job_id: str, lease: int, worker: str) -> bool:
        """Whether this check is under way on ``worker``."""
        return self._under_way(job_id, lease, worker) is not None

    def may_read(self, job_id: str, lease: int, digest: str, worker: str) -> bool:
        """Whether this check is under way and needs the blob: it is the code, or the list of its files."""
        check = self._under_way(job_id, lease, worker)
        return check is not None and digest in (check.bundle, check.key[1])

    def _under_way(self, job_id: str, lease: int, worker: str) -> Check | None:
        check = self._checks.get(job_id)
        ours = check is not None and (check.lease, check.key[0]) == (lease, worker)
        return check if ours else None

    def record(self, job_id: str, lease: int, source: str, first: int, events: list[Any], worker: str) -> int:
        """Take a batch of a check's events; returns the last number. Raises `StaleLease`."""
        check = self._under_way(job_id, lease, worker)
        if check is None:
            raise StaleLease(f"import check {job_id} is not under way", job=job_id, lease=lease)
        recorded = check.recorded.get(source, 0)
        if first > recorded + 1:
            raise protocol.ProtocolViolation(f"events {recorded + 1} to {first - 1} of {job_id} are missing")
        for event in events[recorded + 1 - first :]:
            self._take(check, event)
        check.recorded[source] = max(recorded, first + len(events) - 1)
        return check.recorded[source]

    def _take(self, check: Check, event: Any) -> None:
        standing = self._standings[check.key]
        if isinstance(event, protocol.Started):
            standing.environment = event.environment
        elif isinstance(event, protocol.Result | protocol.Exit):
            self._checks.pop(check.id, None)
            self._conclude(standing, concluded(event))
            worker, _, module = check.key
            state, message, _ = standing.conclusion
            if state in _FOUND:
                log.warning("worker %s %s %s: %s", worker, _FOUND[state], module, message)

    def _conclude(self, standing: Standing, conclusion: Conclusion) -> None:
        standing.conclusion, standing.check = conclusion, None
        if conclusion.state == "ok":
            standing.failures = 0
        else:
            first_s, most_s = (
                (_NOT_STARTED_S, _NOT_STARTED_S_MAX)
                if conclusion.state == "unchecked"
                else (self._again_s, self._again_s * AGAIN_MOST)
            )
            delay_s = min(most_s, first_s * 2 ** min(standing.failures, 16))
            standing.failures += 1
            standing.again_after_s = delay_s
            standing.again_at = time.monotonic() + delay_s
            asyncio.get_running_loop().call_later(delay_s + 0.01, self._wakeup.set)
        self._wakeup.set()

    # ------------------------------------------------------------ workers that come and go

    def resumed(self, worker: str, held: protocol.Held) -> dict[str, int] | None:
        """What is recorded of a check that a worker still holds; None when it is none of ours."""
        check = self._under_way(held.job, held.lease, worker)
        return None if check is None else check.recorded

    def attached(self, worker: str, listed: Iterable[str], same_instance: bool) -> None:
        """A worker is here (again) and holds the jobs ``listed``; another instance begins with nothing."""
        kept = set(listed)
        for key, standing in list(self._standings.items()):
            if key[0] != worker or standing.check in kept:
                continue
            if not same_instance:
                del self._standings[key]
            elif standing.check is not None:
                standing.check = None
        for check in [c for c in self._checks.values() if c.key[0] == worker and c.id not in kept]:
            del self._checks[check.id]


def concluded(event: protocol.Result | protocol.Exit) -> Conclusion:
    """What the end of a check shows."""
    if isinstance(event, protocol.Exit):
        if event.reason in _TOO_SLOW:
            return Conclusion("slow", event.message)
        if event.reason == "crashed" and _by_itself(event):
            return Conclusion("missing", f"the process ended while importing: {event.message}")
        return Conclusion("unchecked", event.message)
    if event.state == "completed":
        return Conclusion("ok")
    if event.reason in _TOO_SLOW:
        return Conclusion("slow", event.message)
    if event.state == "cancelled":
        return Conclusion("unchecked", event.message)
    return Conclusion("missing", event.message, event.error)


def _by_itself(event: protocol.Exit) -> bool:
    """Whether the module ended the process. Warden, agent and kernel do so with SIGKILL, or unseen."""
    return event.code is not None or event.signal not in (None, signal.SIGKILL)


def code_of(job: Job) -> tuple[str, str]:
    """The fingerprint of a job, and the module that its entry lies in."""
    return job.fingerprint, job.entry.partition(":")[0]


def _is_due(standing: Standing) -> bool:
    return time.monotonic() >= standing.again_at
