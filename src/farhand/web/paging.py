"""Query parameters that several routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import HTTPException, Query

from ..lifecycle import TASK

Limit = Annotated[int, Query(ge=1, le=1000, description="How many items at most.")]
After = Annotated[int, Query(ge=0, description="The number of the last item already known.")]
Cursor = Annotated[str | None, Query(max_length=200, description="The `next` of the page before.")]
TaskState = Annotated[str | None, Query(description=f"One of {', '.join(TASK)}.")]


def check_task_state(state: str | None) -> None:
    """Raises the answer 422 for a state that no task call has."""
    if state is not None and state not in TASK:
        raise HTTPException(422, f"state: must be one of {', '.join(TASK)}")
