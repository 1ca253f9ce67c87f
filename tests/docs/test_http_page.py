"""docs/http.md names every route of the API, and none that is not there."""

from __future__ import annotations

import re

from tests.docs.pages import page

_ROUTE = re.compile(r"^\| `(GET|POST|PUT|PATCH|DELETE|HEAD|WS)(?:, \w+)?` \| `([^`]+)` \|", re.MULTILINE)


def documented() -> set[str]:
    return {path for _, path in _ROUTE.findall(page("http.md"))}
