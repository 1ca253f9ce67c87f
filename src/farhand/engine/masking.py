"""Known secrets made unreadable in what leaves the server: problem details, its log, audit, parameters.

The server masks every secret it keeps, as an engine masks those its job has read. A value that was changed or
deleted stays known until the server ends. Pure.
"""

from __future__ import annotations

import json
from typing import Any

from farhand_worker import masking
from farhand_worker.masking import MASK


class Masker(masking.Masker):
    """Masks texts when called, and JSON in a way that leaves it JSON."""

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it masked, and a number that is a secret replaced by the mask."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {self(str(name)): self.value(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return MASK if self(str(value)) == MASK else value

    def json(self, text: str) -> str:
        """JSON text, masked where it holds a secret; text that is not JSON is masked as it is."""
        if not self.finds(text):
            return text
        try:
            return json.dumps(self.value(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
        except ValueError:
            return self(text)
