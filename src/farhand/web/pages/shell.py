"""What every page shares: templates, the way back to the root, and errors that people can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from ...engine.roles import Identity
from ...errors import FarhandError, Unauthorized
from ..access import MAY, require
from . import wording

NOT_SIGNED_IN = "you are not signed in"

Visitor = Annotated[Identity, Depends(require("read"))]
"""The type of a page's ``visitor`` parameter: somebody who may look."""


def environment() -> Environment:
    """The templates, with the words and numbers they use."""
    templates = Path(__file__).with_name("templates")
    env = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        moment=wording.moment,
        duration=wording.duration,
        size=wording.size,
        number=wording.number,
        mebibytes=wording.mebibytes,
        short=wording.short,
        pretty=wording.pretty,
        clock=wording.clock,
        said=wording.said,
        progress=wording.progress,
        compared=wording.compared,
        marked=marked,
    )
    return env


def marked(text: str) -> Markup:
    """A message with what stands in backticks as code."""
    return Markup(re.sub(r"``?([^`]+)``?", r"<code>\1</code>", str(escape(text))))


def root_of(path: str) -> str:
    """The relative way from a page to the root: ``./`` for ``/``, ``../`` for ``/runs/x``."""
    return "../" * (path.count("/") - 1) or "./"


def render(
    request: Request,
    template: str,
    visitor: Identity | None = None,
    *,
    status: int = 200,
    root: str | None = None,
    **shown: Any,
) -> HTMLResponse:
    """A page or fragment out of its template.

    A fragment's links start from the page it is put into: it passes that page's ``root``.
    """
    env: Environment = request.app.state.templates
    may = frozenset(action for action, roles in MAY.items() if visitor and visitor.role in roles)
    text = env.get_template(template).render(
        root=root_of(request.url.path) if root is None else root,
        visitor=visitor,
        may=may,
        **shown,
    )
    # What users wrote may hold lone surrogates, which no page can.
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with our own errors turned into a page."""
        handle = super().get_route_handler()

        async def handling(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthorized as error:
                bare = str(error) == str(Unauthorized())
                return render(request, "signin.html", status=401, said=NOT_SIGNED_IN if bare else str(error))
            except FarhandError as error:
                if error.status == 500:
                    raise
                said = request.app.state.services.masker(str(error))
                return render(request, "problem.html", status=error.status, said=said, code=error.code)

        return handling
