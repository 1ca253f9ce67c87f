"""The HTTP API, for reading: the page is drawn from the OpenAPI document that the server publishes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.responses import Response

from ..routing import Routes
from .shell import PageRoute, Visitor, render

router = Routes(kind=PageRoute, described=False)
Json = dict[str, Any]
_REFERENCE = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Named:
    """A parameter or a field: what it is called, what it takes, and what is said of it."""

    name: str
    takes: str
    required: bool
    says: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation may answer. ``shape`` names the record, where it is one."""

    status: str
    says: str
    shape: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    says: str
    parameters: list[Named]
    body: list[Named]
    answers: list[Answer]


@router.get("/api")
async def api_page(request: Request, visitor: Visitor) -> Response:
    """The page."""
    document: Json = await asyncio.to_thread(request.app.openapi)
    return render(
        request,
        "api.html",
        visitor,
        groups=grouped(document),
        records={name: list(members(schema)) for name, schema in document["components"]["schemas"].items()},
        told={
            name: schema.get("description", "") for name, schema in document["components"]["schemas"].items()
        },
    )


def grouped(document: Json) -> dict[str, list[Operation]]:
    """The operations by what they are about, in the document's order."""
    groups: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            group = (route.get("tags") or ["other"])[0]
            groups.setdefault(group, []).append(_operation(document, method.upper(), path, route))
    return groups


def _operation(document: Json, method: str, path: str, route: Json) -> Operation:
    parameters = [
        Named(
            item["name"],
            takes(item.get("schema", {})),
            item.get("required", False),
            item.get("description", "") or item.get("schema", {}).get("description", ""),
            item["in"],
        )
        for item in route.get("parameters", ())
    ]
    body = _content(route.get("requestBody", {}))
    answers = [
        Answer(status, told.get("description", ""), takes(_content(told)))
        for status, told in route["responses"].items()
    ]
    shape = document["components"]["schemas"].get(_record_of(body), {})
    return Operation(method, path, route.get("description", ""), parameters, list(members(shape)), answers)


def members(schema: Json) -> Iterator[Named]:
    """The fields of a record."""
    required = frozenset(schema.get("required", ()))
    for name, shape in schema.get("properties", {}).items():
        yield Named(name, takes(shape), name in required, shape.get("description", ""))


def takes(shape: Json) -> str:
    """A schema in words: ``list of Attempt``, ``number or null``."""
    if "$ref" in shape:
        return shape["$ref"].removeprefix(_REFERENCE).replace("Page_", "page of ").rstrip("_")
    if "enum" in shape or "const" in shape:
        return " or ".join(repr(value) for value in shape.get("enum", [shape.get("const")]))
    parts = [takes(part) for part in (*shape.get("anyOf", ()), *shape.get("oneOf", ()))]
    if parts:
        return " or ".join(dict.fromkeys(parts))
    if shape.get("type") == "array":
        return f"list of {takes(shape.get('items', {}))}"
    return str(shape.get("type", "any JSON"))


def _record_of(body: Json) -> str:
    """The name of the record that a body is, or may be."""
    for part in (body, *body.get("anyOf", ())):
        if "$ref" in part:
            return part["$ref"].removeprefix(_REFERENCE)
    return ""


def _content(told: Json) -> Json:
    return told.get("content", {}).get("application/json", {}).get("schema", {})
