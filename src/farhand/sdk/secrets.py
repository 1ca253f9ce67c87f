"""``secret`` and ``variable``: what code needs to know and nobody should read, or what may change without it.

In an engine both are asked of the server, a secret only by a job that declares it (its own ``secrets=[…]``
or that of a step its code names). Elsewhere they come from the environment. Once a secret has been read,
whatever the run writes is searched for it.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, Optional

from farhand.errors import Forbidden, NotFound
from farhand_worker.masking import MASK, Masker

from .context import Run, current
from .references import hex_of

_PREFIXES = {"secret": "FARHAND_SECRET_", "variable": "FARHAND_VARIABLE_"}
_OURS = frozenset(
    [
        "digest",
        "enc",
        "job",
        "key",
        "kind",
        "level",
        "name",
        "needs",
        "of",
        "scope",
        "state",
        "stream",
        "task",
    ]
)
"""Fields of events that hold no text of user code, or that nothing works without."""


def secret(name: str) -> str:
    """The value of a secret that this flow or task declares.

    In a script, a test or a notebook it is that of the environment variable ``FARHAND_SECRET_<NAME>``.
    Raises `Forbidden` when it is not declared, `NotFound` when there is none.
    """
    frame = current()
    if frame is None:
        return _from_environment("secret", name)
    run = frame.run
    if name not in run.secrets:
        if run.ask is not None:
            value = str(run.ask("secret", {"name": name})["value"])
        elif name in run.declared:
            value = _from_environment("secret", name)
        else:
            raise Forbidden(f"this run does not declare the secret {name!r}; add it to secrets=[…]")
        _hide(run, name, value)
        run.secrets[name] = value
    return run.secrets[name]


def variable(name: str) -> Any:
    """The value of a variable of the server, any JSON.

    In a script it is that of ``FARHAND_VARIABLE_<NAME>``: JSON, or else the text itself. Raises `NotFound`.
    """
    frame = current()
    if frame is not None and frame.run.ask is not None:
        return frame.run.ask("variable", {"name": name})["value"]
    text = _from_environment("variable", name)
    try:
        return json.loads(text)
    except ValueError:
        return text


def _from_environment(kind: str, name: str) -> str:
    variable_name = _PREFIXES[kind] + re.sub("[^A-Z0-9]", "_", name.upper())
    value = os.environ.get(variable_name)
    if value is None:
        raise NotFound(
            f"there is no {kind} {name!r} here: outside of a server it is read from the environment, "
            f"so set {variable_name}"
        )
    return value


def _hide(run: Run, name: str, value: str) -> None:
    if run.masker is None:
        run.masker = Masker()
        run.recorder.mask = LineMask(run.masker)
    if not run.masker.add(value):
        run.log(f"the secret {name} is too short to be masked in logs", "warning")


class LineMask:
    """Masks the texts inside of an event's line, and leaves it the event that it was."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker

    def __call__(self, line: str) -> str:
        if not self._masker.finds(line):
            return line
        kind, body, *digests = json.loads(line)
        return json.dumps([kind, self._fields(body), *digests], separators=(",", ":")) + "\n"

    def _fields(self, body: Dict[str, Any]) -> Dict[str, Any]:
        if "enc" in body:
            return self._value(body)
        shown = {
            name: value if name in _OURS else MASK if name == "pickle" else self._any(value)
            for name, value in body.items()
        }
        if shown.get("pickle") == MASK:
            del shown["pickle"]
        return shown

    def _any(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._masker(value)
        if isinstance(value, dict):
            return self._fields(value)
        if isinstance(value, list):
            return [self._any(item) for item in value]
        return value

    def _value(self, body: Dict[str, Any]) -> Dict[str, Any]:
        """An encoded value: what is not JSON text cannot be masked in part."""
        text = body.get("text")
        if text is None or not self._masker.finds(text):
            return body
        if body["enc"] != "json":
            return {"enc": "json", "text": json.dumps(MASK)}
        return {"enc": "json", "text": json.dumps(self._within(json.loads(text)), separators=(",", ":"))}

    def _within(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._masker(value)
        if isinstance(value, dict):
            return {self._masker(name): self._within(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._within(item) for item in value]
        if isinstance(value, bool) or value is None:
            return value
        return MASK if self._masker.finds(str(value)) else value


def taken_back(run: Run, body: Optional[Dict[str, Any]]) -> bool:
    """Whether an encoded value holds a secret and so must not be recorded; its blob is removed."""
    if not holds_secret(run, body):
        return False
    if body is not None and "digest" in body:
        (run.recorder.blobs_or_temporary() / hex_of(body["digest"])).unlink(missing_ok=True)
    return True


def holds_secret(run: Run, body: Optional[Dict[str, Any]]) -> bool:
    """Whether an encoded value, or the blob that holds it, has a secret in it."""
    if run.masker is None or body is None:
        return False
    if "digest" not in body:
        return run.masker.finds(body.get("text", ""))
    path = run.recorder.blobs_or_temporary() / hex_of(body["digest"])
    return run.masker.finds(path.read_bytes().decode("utf-8", "replace"))
