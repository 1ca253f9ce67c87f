"""Declared flows: documents that are put, checked by a child, and kept in versions.

The server neither compiles nor runs what a document holds. The child reads it and says what is wrong, or
what the flow is and which files its code consists of; these become a bundle like that of a project.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from dataclasses import replace
from typing import Any

import msgspec

from farhand_worker.manifest import digest_file, write_manifest

from .. import timing
from ..blobs import Blobs, digest_of
from ..errors import Changed, Conflict, InvalidDocument, NotFound, Usage
from ..lifecycle import RUN, is_terminal
from ..model import DECLARED, Flow, Json, Version
from ..sdk.timetables import in_words_of_documents
from ..store import Store
from ..store.answers import Answer
from ..store.changes import Effects
from .bus import Bus, Notice
from .consequences import Consequences
from .needed import services_of
from .packing import Found, bundle
from .projects import check_name, schedule_of, version_of
from .pruner import Pruner
from .runs import Runs
from .scheduler import Scheduler

CHECK_S = 20.0
"""A document that takes longer to be read is refused."""

_CANCELLABLE = tuple(state for state in RUN if not is_terminal(RUN, state) and state != "cancelling")
_AT_ONCE = 2
_PAGE = 200


class Planned(msgspec.Struct):
    """A schedule of a document, and its place there."""

    place: int
    spec: Json


class Said(msgspec.Struct):
    """What the child says: mistakes with their sentence, or the flow and its files.

    Whether its ``schedules`` ever fire is for the server to say, which keeps time.
    """

    flow: Found | None = None
    files: dict[str, str] = {}
    message: str = ""
    mistakes: list[Json] = []
    schedules: list[Planned] = []


class Declared:
    """Every operation on declared flows."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        runs: Runs,
        pruner: Pruner,
        scheduler: Scheduler,
        bus: Bus,
        consequences: Consequences,
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._consequences = consequences
        self._blobs = blobs
        self._runs = runs
        self._pruner = pruner
        self._bus = bus
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def put(self, name: str, document: Json, who: str, expected: str | None = None) -> Version:
        """Keep a document as the newest version of a flow; runs that are under way go on as they began.

        Raises `InvalidDocument` with every mistake, `Changed` when ``expected`` is not the etag of what is
        there, `Conflict` when a project has a flow of that name, or another flow a service of the same.
        """
        check_name(name)
        async with self._room:
            said = await _checked(name, document)
        untimely = _untimely(said.schedules)
        if said.flow is None or untimely:
            sentences = [said.message, *(str(mistake["message"]) for mistake in untimely)]
            told = "; ".join(sentence for sentence in sentences if sentence)
            raise InvalidDocument(told, mistakes=[*said.mistakes, *untimely])
        flow = await asyncio.to_thread(self._packed, name, said.flow, said.files)
        version = version_of(flow, document, who)
        code = replace(said.flow, fingerprint=flow.fingerprint)
        services, effects = services_of(code, DECLARED, flow.bundle, {}), Effects()
        schedules = [schedule_of(DECLARED, said.flow, timed) for timed in said.flow.schedules]

        def follow(answer: Answer[Version]) -> Version:
            kept = answer.result()
            self._consequences.follow(effects.freeze())
            self._tell()
            return kept

        return await self._store.versions.put(
            flow, version, expected, time.time(), list(services.values()), effects, schedules
        ).then(follow)

    def _tell(self) -> None:
        """What is offered has changed, and what fires."""
        self._scheduler.reload()
        self._bus.publish(Notice("project"))
        self._bus.publish(Notice("schedule"))

    async def latest(self, flow: str) -> Version | None:
        """The newest version of a flow; None for one that is not declared."""
        return await self._store.versions.latest(flow)

    async def versions(self, flow: str) -> list[Version]:
        """Every version of a declared flow, the newest first. Raises `NotFound`."""
        found = await self._store.versions.list(flow)
        if not found:
            raise NotFound(f"there is no declared flow {flow!r}")
        return found

    async def of_run(self, flow: str, fingerprint: str) -> Version | None:
        """The version that a run of this code is of; None for other flows."""
        return await self._store.versions.of_code(flow, fingerprint) if fingerprint else None

    async def delete(self, name: str, *, forced: bool = False, expected: str | None = None) -> int:
        """Delete a flow that was put, or that its project has no more, with all its runs; how many.

        Raises `Conflict` while runs of it are not over; with ``forced`` those are cancelled, and each is
        gone once it has ended.
        """
        flow = await self._store.flows.get(name)
        put = flow is not None and flow.project == DECLARED
        if expected is not None and not put:
            raise Usage(f"flow {name!r} was not put, so there is nothing that If-Match could name")
        forced = forced and (flow is None or put or not flow.present)
        if forced:
            version = await self._store.versions.latest(name)
            if expected not in (None, "*") and (version is None or version.etag != expected):
                raise Changed(f"flow {name!r} is not what this deletion is based on; nothing was cancelled")
            await self._cancel_all(name)
        project, effects = DECLARED if put else "", Effects()
        runs = await self._pruner.delete_flow(
            name, forced=forced, project=project, expected=expected, effects=effects
        )
        self._consequences.follow(effects.freeze())
        self._tell()
        return runs

    async def _cancel_all(self, flow: str) -> None:
        """Cancel the open runs of a flow; what is being cancelled already ends by itself."""
        tried: set[str] = set()
        while left := set(await self._open_runs(flow, *_CANCELLABLE)) - tried:
            tried |= left
            for run in sorted(left):
                with contextlib.suppress(Conflict):  # it has ended meanwhile
                    await self._runs.cancel(run)

    async def _open_runs(self, flow: str, *states: str) -> list[str]:
        """Up to a page of runs in each state, those that other runs started left out."""
        pages = [await self._runs.page(_PAGE, None, flow, state) for state in states]
        return [run.id for page in pages for run in page.items if run.root is None]

    def _packed(self, name: str, found: Found, files: dict[str, str]) -> Flow:
        """The flow, its bundle and manifest on disk."""
        contents = {file: text.encode() for file, text in files.items()}
        content = bundle(contents)
        manifest = write_manifest({file: digest_file(data) for file, data in contents.items()})
        for blob in (content, manifest):
            self._blobs.put_bytes(blob)
        return Flow(
            name=name,
            project=DECLARED,
            entry=found.entry,
            description=found.description,
            schema=found.schema,
            ask=found.ask,
            settings=found.settings,
            bundle=digest_of(content),
            fingerprint=digest_of(manifest),
        )


def _untimely(schedules: list[Planned]) -> list[Json]:
    """The mistakes of schedules that never fire, or by a clock that is nowhere."""
    found: list[Json] = []
    for planned in schedules:
        try:
            timing.read(planned.spec)
        except Usage as error:
            said = in_words_of_documents(error)
            found.append({"node": None, "message": f"schedules: in place {planned.place}: {said}"})
    return found


async def _checked(name: str, document: Json) -> Said:
    """What the child says of a document. Raises `Usage` when it cannot say anything."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "farhand.sdk.saving",
        env={name: value for name, value in os.environ.items() if not name.startswith("FARHAND_")},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    asked: dict[str, Any] = {"name": name, "document": document}
    try:
        async with asyncio.timeout(CHECK_S):
            said, _ = await process.communicate(msgspec.json.encode(asked))
        if process.returncode == 0:
            return msgspec.json.decode(said, type=Said)
    except TimeoutError:
        raise Usage(f"the document could not be read in {CHECK_S:g} s; make it smaller") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    raise Usage("the document could not be read: it is nested too deeply, or its sources are")
