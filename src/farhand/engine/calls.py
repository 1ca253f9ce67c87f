"""The calls of a run as people look at them: a page of them, how many there are, and why one waits."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Page, TaskRun
from ..store import Store
from .adrift import is_away, sentence
from .fleet import Fleet
from .queue import Queue
from .runs import Runs

FAILING = ("failed", "crashed")
"""What somebody who looks at a run that failed wants to see first."""


class Calls:
    """Reads the calls of runs, whose ids may be given by a prefix."""

    def __init__(self, store: Store, runs: Runs, queue: Queue, fleet: Fleet) -> None:
        self._store = store
        self._runs = runs
        self._queue = queue
        self._fleet = fleet

    async def page(
        self, id: str, after: int = 0, limit: int = 200, state: str | None = None
    ) -> Page[TaskRun]:
        """The calls after number ``after``, in the order they began; or those in ``state`` alone."""
        part = await self._runs.part(id)
        return await self._store.tasks.page(part.root, after, limit, part.keys, state)

    async def failing_first(self, id: str, after: int = 0, limit: int = 200) -> Page[TaskRun]:
        """A page; where it does not hold all, what failed or crashed comes first, up to half of it.

        The others are in their order, and so is the next page: what failed further on is on that as well.
        """
        page = await self.page(id, after, limit)
        if page.next is None:
            return page
        failing = (
            [task for state in FAILING for task in (await self.page(id, after, limit // 2, state)).items]
            if limit > 1
            else []
        )
        return merged(sorted(failing, key=lambda task: task.number)[: limit // 2], page.items, limit)

    async def tally(self, id: str, after: int = 0) -> dict[str, int]:
        """How many of the calls after number ``after`` are in each state that any is in."""
        part = await self._runs.part(id)
        return await self._store.tasks.tally(part.root, after, part.keys)

    def why_waiting(self, task: TaskRun) -> str:
        """Why a placed call does not go on, in one sentence: it is queued, or its worker is not heard of;
        empty where it goes on."""
        if task.placed is None or task.state not in ("queued", "running"):
            return ""
        if task.state == "queued":
            return self._queue.reason_of_job(task.placed)
        held = self._fleet.holder(task.placed)
        return sentence(self._fleet, *held) if held is not None and is_away(held[0]) else ""


def merged(failing: Sequence[TaskRun], items: Sequence[TaskRun], limit: int) -> Page[TaskRun]:
    """A page of ``limit`` that begins with ``failing``, and goes on where its other ``items`` end."""
    first = {task.number for task in failing}
    others = [task for task in items if task.number not in first][: limit - len(failing)]
    return Page([*failing, *others], str(others[-1].number))
