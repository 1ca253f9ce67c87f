"""Every route of an application: what it is called by, and which action it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from farhand.web.access import OPEN


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
    """All of them, those of included routers too."""
    return list(_routes(app.routes))


def _routes(found: Any) -> Iterator[Route]:
    for route in found:
        if hasattr(route, "effective_candidates"):
            yield from _routes(route.effective_candidates())
            continue
        actions = tuple(_actions(getattr(route, "dependant", None)))
        name = getattr(getattr(route, "endpoint", None), "__name__", "")
        for method in sorted(getattr(route, "methods", None) or {"GET"}):
            yield Route(method, route.path, name, actions)


def _actions(dependant: Any) -> Iterator[str]:
    for inner in dependant.dependencies if dependant else ():
        if hasattr(inner.call, "action"):
            yield inner.call.action
        yield from _actions(inner)
