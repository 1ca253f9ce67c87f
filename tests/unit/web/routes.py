"""Every route of an application: what it is called by, and which action it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from farhand.web.access import OPEN
from farhand.web.routing import Late, Table


@dataclass(frozen=True)
class Route:
    """One method of one path. ``action`` is None where nothing is asked of whoever comes."""

    method: str
    path: str
    name: str
    actions: tuple[str, ...]

    @property
    def open(self) -> bool:
        """Whether it answers without a credential."""
        return any(self.path == path or self.path.startswith(f"{path}/") for path in OPEN)


def routes(app: Any) -> list[Route]:
    """All of them, those of the table too."""
    return list(_routes(app.routes))


def _routes(found: Any) -> Iterator[Route]:
    for route in found:
        if isinstance(route, Table):
            yield from (_told(late) for late in route.routes)
        else:
            name = getattr(getattr(route, "endpoint", None), "__name__", "")
            yield Route("GET", route.path, name, ())


def _told(late: Late) -> Route:
    actions = tuple(_actions(late.answering.dependant))
    return Route(late.method, late.path, late.endpoint.__name__, actions)


def _actions(dependant: Any) -> Iterator[str]:
    for inner in dependant.dependencies if dependant else ():
        if hasattr(inner.call, "action"):
            yield inner.call.action
        yield from _actions(inner)
