"""Which profiles are out for a job, since a machine of theirs came and could not take it.

One that came with less than its profile says is out for all that ask for as much. One that is against the
job's code is out for that job alone: what is installed on the machines of a profile may be mended meanwhile.
So no job has machine after machine of one profile asked for.
"""

from __future__ import annotations

from ..model import Ask, Job
from ..provisioning import Key

_JOBS_MAX = 10_000


class Disproofs:
    """What machines that came have shown of their profiles."""

    def __init__(self) -> None:
        self._of_ask: set[tuple[Key, Ask]] = set()
        self._of_job: dict[str, set[Key]] = {}

    def out_for(self, job: Job) -> frozenset[Key]:
        """The profiles that are not asked on behalf of a job any more."""
        found = {key for key, ask in self._of_ask if ask == job.ask}
        return frozenset(found | self._of_job.get(job.id, set()))

    def has_less(self, key: Key, ask: Ask) -> None:
        """A machine of a profile has less than is asked for, though the profile said otherwise."""
        self._of_ask.add((key, ask))

    def cannot_run(self, key: Key, job: Job) -> None:
        """On a machine of a profile something is against the code of a job, or its arguments."""
        self._of_job.setdefault(job.id, set()).add(key)
        for oldest in list(self._of_job)[:-_JOBS_MAX]:
            del self._of_job[oldest]

    def clear(self) -> None:
        """The profiles are others now."""
        self._of_ask.clear()
        self._of_job.clear()
