"""Query parameters that several routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

Limit = Annotated[int, Query(ge=1, le=1000, description="How many items at most.")]
After = Annotated[int, Query(ge=0, description="The number of the last item already known.")]
Cursor = Annotated[str | None, Query(max_length=200, description="The `next` of the page before.")]
