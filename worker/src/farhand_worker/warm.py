"""Engines without a job: those that the next jobs get, and those that wait for another to retire.

A successor is kept apart until its predecessor is done: among the others it would be the one that has been
idle for longest, and be let go as one too many before it was ever used.
"""

from __future__ import annotations

from typing import Any, Dict, Generic, List, Optional, Protocol, TypeVar


class Kept(Protocol):
    """An engine, as far as this goes."""

    key: Any
    environment: str

    @property
    def is_ready(self) -> bool:
        """Whether it can be given a job."""
        ...


K = TypeVar("K", bound=Kept)


class Warm(Generic[K]):
    """The latest in use is the first to be used again."""

    def __init__(self) -> None:
        self._idle: List[K] = []
        self._successors: Dict[K, K] = {}

    def __contains__(self, engine: object) -> bool:
        return engine in self._idle or engine in self._successors.values()

    def take(self, key: Any) -> Optional[K]:
        """An engine for jobs of a key; a successor only where there is no other."""
        for engine in [*reversed(self._idle), *self._successors.values()]:
            if engine.key == key and engine.is_ready:
                self._remove(engine)
                return engine
        return None

    def put(self, engine: K) -> None:
        """It has nothing to do."""
        self._idle.append(engine)

    def put_behind(self, successor: K, predecessor: K) -> None:
        """It is for the jobs that come once another is done."""
        self._successors[predecessor] = successor

    def drop(self, engine: K) -> Optional[K]:
        """An engine takes no more jobs; the one that now has nothing to do in its place, if there is one."""
        self._remove(engine)
        successor = self._successors.pop(engine, None)
        if successor is not None:
            self.put(successor)
        return successor

    def beyond(self, count: int) -> List[K]:
        """Those that have been idle for longest, but for so many."""
        return self._idle[: max(0, len(self._idle) - count)]

    def outdated(self, environment: str) -> List[K]:
        """Those that are ready, and know of another environment."""
        every = [*self._idle, *self._successors.values()]
        return [engine for engine in every if engine.is_ready and engine.environment != environment]

    def _remove(self, engine: K) -> None:
        if engine in self._idle:
            self._idle.remove(engine)
        for predecessor, successor in list(self._successors.items()):
            if successor is engine:
                del self._successors[predecessor]
