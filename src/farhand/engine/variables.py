"""Variables: plain JSON values that any job may read, and that change without touching code."""

from __future__ import annotations

import json
import time
from typing import Any

from ..errors import NotFound, Usage
from ..model import Variable
from ..store import Store
from .secrets import check_name

VALUE_BYTES_MAX = 64 * 1024


class Variables:
    """Sets, reads, lists and deletes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def set(self, name: str, value: Any, by: str) -> bool:
        """Keep a JSON value under a name; true when there was none before. Raises `Usage`."""
        check_name(name, "a variable")
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            size = len(text.encode())
        except ValueError:
            raise Usage("the value is not JSON: it has a number or a text that JSON cannot carry") from None
        if size > VALUE_BYTES_MAX:
            raise Usage(f"a variable has at most {VALUE_BYTES_MAX} bytes; save an artifact instead")
        return await self._store.variables.set(Variable(name, text, time.time(), by))

    async def get(self, name: str) -> Variable:
        """The variable. Raises `NotFound`."""
        found = await self._store.variables.get(name)
        if found is None:
            raise NotFound(f"there is no variable {name!r}; `farhand variables list` shows them")
        return found

    async def list(self) -> list[Variable]:
        """Every variable by name."""
        return await self._store.variables.list()

    async def delete(self, name: str) -> None:
        """Forget a variable. Raises `NotFound`."""
        if not await self._store.variables.delete(name):
            raise NotFound(f"there is no variable {name!r}; `farhand variables list` shows them")
