"""Routes as they are written down, and the table that finds the one for a request.

Declaring a route costs nothing. What the framework makes of its signature takes milliseconds, times a hundred
routes: it is made for one route when the first request for it comes, and for all of them, with the records
they answer, when the OpenAPI document is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_Decorator = Callable[[_Endpoint], _Endpoint]


@dataclass(frozen=True, slots=True)
class Declared:
    """A route as it is written down; ``told`` is what else the framework is to know of it."""

    method: str
    path: str
    endpoint: Callable[..., Any]
    kind: type[APIRoute]
    told: dict[str, Any]


class Routes:
    """A group of routes, declared by decorators as those of a FastAPI router are."""

    def __init__(
        self,
        prefix: str = "",
        tags: Sequence[str] = (),
        kind: type[APIRoute] = APIRoute,
        described: bool = True,
    ) -> None:
        self.declared: list[Declared] = []
        self._prefix = prefix
        self._kind = kind
        self._told: dict[str, Any] = {"tags": list(tags), "include_in_schema": described}

    def get(self, path: str, **told: Any) -> _Decorator[Any]:
        """Declare what GET answers under a path."""
        return self._declare("GET", path, told)

    def head(self, path: str, **told: Any) -> _Decorator[Any]:
        """Declare what HEAD answers under a path."""
        return self._declare("HEAD", path, told)

    def post(self, path: str, **told: Any) -> _Decorator[Any]:
        """Declare what POST does under a path."""
        return self._declare("POST", path, told)

    def put(self, path: str, **told: Any) -> _Decorator[Any]:
        """Declare what PUT does under a path."""
        return self._declare("PUT", path, told)

    def patch(self, path: str, **told: Any) -> _Decorator[Any]:
        """Declare what PATCH does under a path."""
        return self._declare("PATCH", path, told)

    def delete(self, path: str, **told: Any) -> _Decorator[Any]:
        """Declare what DELETE does under a path."""
        return self._declare("DELETE", path, told)

    def _declare(self, method: str, path: str, told: dict[str, Any]) -> _Decorator[Any]:
        def declaring(endpoint: _Endpoint) -> _Endpoint:
            known = self._told | told
            self.declared.append(Declared(method, self._prefix + path, endpoint, self._kind, known))
            return endpoint

        return declaring


class Late:
    """A declared route under its whole path, whose signature is read when it is needed."""

    def __init__(self, declared: Declared, prefix: str = "") -> None:
        self._declared = declared
        self.path = prefix + declared.path
        self.method = declared.method
        self.endpoint = declared.endpoint
        self.public: bool = declared.told["include_in_schema"]
        self.segments = self.path.split("/")
        self._names = {index: part[1:-1] for index, part in enumerate(self.segments) if part.startswith("{")}

    def parameters(self, parts: list[str]) -> dict[str, str] | None:
        """What the path of a request, as many parts, gives for those in braces; None when it does not fit."""
        found: dict[str, str] = {}
        for index, (own, part) in enumerate(zip(self.segments, parts, strict=True)):
            if name := self._names.get(index):
                found[name] = part
            if not (part if name else own == part):
                return None
        return found

    @cached_property
    def answering(self) -> APIRoute:
        """The route that answers. What it answers is a response already: no model of that is needed."""
        return self._built(self._declared.told | {"response_model": None})

    def described(self) -> APIRoute:
        """The route with all that the OpenAPI document says of it."""
        return self._built(self._declared.told)

    def _built(self, told: dict[str, Any]) -> APIRoute:
        return self._declared.kind(self.path, self.endpoint, methods=[self.method], **told)


class Table(BaseRoute):
    """All the routes of an application, found by the number of segments; the first that fits answers."""

    def __init__(self, groups: Iterable[tuple[str, Routes]]) -> None:
        self.routes = [Late(declared, prefix) for prefix, group in groups for declared in group.declared]
        self._by_length: dict[int, list[Late]] = {}
        for route in self.routes:
            self._by_length.setdefault(len(route.segments), []).append(route)

    def described(self) -> list[APIRoute]:
        """Every route that the OpenAPI document tells of."""
        return [route.described() for route in self.routes if route.public]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Find the route; of a path that answers other methods only, which those are."""
        if scope["type"] != "http":
            return Match.NONE, {}
        parts = scope["path"].split("/")
        others: list[str] = []
        for route in self._by_length.get(len(parts), ()):
            found = route.parameters(parts)
            if found is None:
                continue
            if route.method == scope["method"]:
                return Match.FULL, {"endpoint": route.endpoint, "path_params": found, "route": route}
            others.append(route.method)
        return (Match.PARTIAL, {"route": others}) if others else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the route that was found."""
        route: Late | list[str] = scope["route"]
        if isinstance(route, list):
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(set(route)))})
        await route.answering.app(scope, receive, send)
