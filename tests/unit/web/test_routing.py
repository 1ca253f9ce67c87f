"""The table of routes: which one a path finds, and that none costs anything before it is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Match

from farhand.web.app import create_app
from farhand.web.routing import Late, Routes, Table


def table() -> Table:
    """Two groups; `fixed` comes before the name that it could be taken for."""
    fixed, named = Routes(), Routes(prefix="/things", tags=["things"])

    @fixed.get("/things/fixed")
    async def told() -> PlainTextResponse:
        return PlainTextResponse("fixed")

    @named.get("/{name}")
    async def thing(name: str) -> PlainTextResponse:
        return PlainTextResponse(name)

    @named.delete("/{name}")
    async def gone(name: str) -> PlainTextResponse:
        return PlainTextResponse(f"no {name}")

    @named.post("")
    async def made() -> PlainTextResponse:
        return PlainTextResponse("made")

    return Table([("/api", fixed), ("/api", named)])


def asked(method: str, path: str) -> tuple[Match, Any]:
    match, found = table().matches({"type": "http", "method": method, "path": path})
    route = found.get("route")
    return match, (route.endpoint.__name__, found["path_params"]) if isinstance(route, Late) else route


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/api/things/fixed", (Match.FULL, ("told", {}))),
        ("DELETE", "/api/things/fixed", (Match.FULL, ("gone", {"name": "fixed"}))),
        ("GET", "/api/things/a b", (Match.FULL, ("thing", {"name": "a b"}))),
        ("POST", "/api/things", (Match.FULL, ("made", {}))),
        ("GET", "/api/things", (Match.PARTIAL, ["POST"])),
        ("PUT", "/api/things/x", (Match.PARTIAL, ["GET", "DELETE"])),
        ("GET", "/api/things/", (Match.NONE, None)),
        ("GET", "/api/things/x/y", (Match.NONE, None)),
        ("GET", "/things/x", (Match.NONE, None)),
        ("GET", "", (Match.NONE, None)),
    ],
)
def test_the_first_route_that_fits_method_and_path_is_found(method: str, path: str, found: Any) -> None:
    assert asked(method, path) == found


def test_a_websocket_finds_no_route() -> None:
    assert table().matches({"type": "websocket", "path": "/api/things/x"}) == (Match.NONE, {})


def test_a_method_that_no_route_of_a_path_has_is_told_all_that_they_have() -> None:
    app = Starlette(routes=[table()])
    answer = TestClient(app).put("/api/things/x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET")


def test_a_signature_is_read_for_the_first_request_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = Late._built  # pyright: ignore[reportPrivateUsage]

    def counted(self: Late, told: dict[str, Any]) -> Any:
        built.append(self.path)
        return build(self, told)

    monkeypatch.setattr(Late, "_built", counted)
    client = TestClient(create_app(None), base_url="http://localhost")  # type: ignore[arg-type]
    assert built == []
    assert [client.get("/healthz").status_code for _ in range(2)] == [200, 200]
    assert built == ["/healthz"]
