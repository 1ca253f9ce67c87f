"""The flows of a project: inspected by a child process, bundled by content, kept in the store.

The server never imports user code. `python -m farhand.sdk.inspection ROOT` does, and prints what it found;
the files it names go into one zip whose digest is the version of the code. The same bytes give the same
bundle on every machine: sorted names, no times, no modes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import logging
import re
import sys
import time
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ..blobs import Blobs
from ..errors import NotFound, Usage
from ..model import NAME_PATTERN, RESERVED_NAMES, Ask, Flow, JobSettings
from ..store import Store

log = logging.getLogger("farhand")

INSPECTION_S_MAX = 300.0
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Found:
    """A flow as the child process reports it."""

    name: str
    entry: str
    description: str
    schema: dict[str, Any]
    ask: Ask
    settings: JobSettings
    file: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A module that could not be inspected."""

    file: str
    error: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything the child process reports."""

    flows: list[Found]
    errors: list[Failure]
    files: list[str]
    left_out: list[str] = field(default_factory=list[str])


class Flows:
    """The flows this server has."""

    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store = store
        self._blobs = blobs

    async def list(self) -> list[Flow]:
        """Every flow, by name; those whose code is gone too, marked so."""
        return await self._store.flows.list()

    async def get(self, name: str) -> Flow:
        """The flow of that name. Raises `NotFound`."""
        flow = await self._store.flows.get(name)
        if flow is None:
            raise NotFound(f"there is no flow {name!r}; `farhand flows list` shows them")
        return flow

    async def load(self, root: Path, project: str = "default") -> Inspection:
        """Inspect a directory and keep what is in it. A module that fails hurts nothing else.

        Returns what was found, without the flows that cannot be offered; the log names them.
        """
        inspection = await inspect(root)
        for failure in inspection.errors:
            log.error("%s is left out: %s", failure.file, failure.error)
        content = await asyncio.to_thread(bundle, root, inspection.files)
        digest = self._blobs.put_bytes(content)
        fingerprint = await asyncio.to_thread(fingerprint_of, root, inspection.files)
        now = time.time()
        usable = _usable(inspection.flows)
        flows = [
            Flow(
                name=found.name,
                project=project,
                entry=found.entry,
                description=found.description,
                schema=found.schema,
                ask=found.ask,
                settings=found.settings,
                bundle=digest,
                fingerprint=fingerprint,
                updated_at=now,
                tags=found.tags,
            )
            for found in usable
        ]
        await self._store.flows.replace(project, flows, now)
        return replace(inspection, flows=usable)


def _usable(found: list[Found]) -> list[Found]:
    """The flows whose names can be used; the first one of a name wins, and the others are named."""
    taken: dict[str, Found] = {}
    for flow in found:
        if re.fullmatch(NAME_PATTERN, flow.name) is None or flow.name in RESERVED_NAMES:
            log.error("flow %r in %s is left out: the name cannot be used", flow.name, flow.file)
        elif flow.name in taken:
            log.error(
                "flow %r in %s is left out: %s has that name", flow.name, flow.file, taken[flow.name].file
            )
        else:
            taken[flow.name] = flow
    return list(taken.values())


async def inspect(root: Path) -> Inspection:
    """What is in a directory, by a child process. Raises `Usage` when the child itself fails."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "farhand.sdk.inspection",
        str(root),
        cwd=root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), INSPECTION_S_MAX)
    except TimeoutError as error:
        raise Usage(f"the flows of {root} did not finish importing in {INSPECTION_S_MAX:.0f} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    try:
        return msgspec.json.decode(output, type=Inspection)
    except msgspec.DecodeError as error:
        raise Usage(f"the flows of {root} could not be inspected; see the lines above") from error


def bundle(root: Path, files: list[str]) -> bytes:
    """The files as one zip that depends on their names and bytes alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), (root / name).read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def fingerprint_of(root: Path, files: list[str]) -> str:
    """The hash of path → digest, with line ends normalised, so that a checkout elsewhere compares equal."""
    total = hashlib.sha256()
    for name in sorted(files):
        content = (root / name).read_bytes().replace(b"\r\n", b"\n")
        total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return f"sha256:{total.hexdigest()}"
