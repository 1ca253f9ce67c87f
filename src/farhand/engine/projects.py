"""The projects of a server: taken from the directory it serves, or from whoever deploys one."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from .. import timing
from ..blobs import Blobs
from ..errors import Conflict, FarhandError, NotFound, Usage
from ..model import NAME_PATTERN, RESERVED_NAMES, Flow, Json, Project, Schedule, Service, Trouble, Version
from ..sdk import parameters
from ..store import Store
from ..suitability import BadSpecifier, python_fits
from .bus import Bus, Notice
from .consequences import Consequences
from .fitness import checked_out
from .needed import services_of
from .packing import Found, Offer, Packed, Timed
from .scheduler import Scheduler

log = logging.getLogger("farhand")

SERVED, DEPLOYED = "served", "deployed"


@dataclass(frozen=True, slots=True)
class Checked:
    """What of an offer can be taken, and what is wrong with the rest; ``conflicts`` with other projects."""

    flows: list[Flow]
    schedules: list[Schedule]
    troubles: list[Trouble]
    conflicts: bool = False
    versions: list[Version] = field(default_factory=list[Version])
    services: list[Service] = field(default_factory=list[Service])


class Projects:
    """Every operation on projects."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        scheduler: Scheduler,
        bus: Bus,
        offered: Callable[[list[str], list[str]], None] = lambda _inspected, _present: None,
        consequences: Consequences | None = None,
    ) -> None:
        self._consequences = consequences
        self._offered = offered
        self._store = store
        self._blobs = blobs
        self._scheduler = scheduler
        self._bus = bus

    async def list(self) -> list[Project]:
        """Every project, by name."""
        return await self._store.projects.list()

    async def get(self, name: str) -> Project:
        """The project of that name. Raises `NotFound`."""
        project = await self._store.projects.get(name)
        if project is None:
            raise NotFound(f"there is no project {name!r}")
        return project

    async def serve(self, root: Path, packed: Packed) -> Checked:
        """Take the served directory as it is now.

        A module that fails hurts nothing else: its flows stay as they were when it last imported.
        """
        self._blobs.put_bytes(packed.content)
        for manifest in packed.manifests.values():
            self._blobs.put_bytes(manifest)
        inspected = [flow.fingerprint for flow in packed.offer.flows]
        stored = await self._store.flows.list()
        checked = check(packed.name, packed.offer, stored)
        for trouble in checked.troubles:
            log.error("%s is left out: %s", trouble.file, trouble.error)
        broken = {trouble.file for trouble in packed.offer.errors}
        taken = {flow.name for flow in checked.flows}
        kept = [
            flow
            for flow in stored
            if flow.project == packed.name and flow.present and flow.file in broken and flow.name not in taken
        ]
        names = {flow.name for flow in kept}
        schedules = [s for s in await self._store.schedules.list() if s.present and s.flow in names]
        theirs = [
            service
            for service in await self._store.services.list()
            if service.project == packed.name and not names.isdisjoint(service.flows)
        ]
        described = {service.name for service in checked.services}
        await self._keep(
            _project(packed.name, SERVED, str(root), packed.offer, checked.troubles),
            [*checked.flows, *kept],
            [*checked.schedules, *schedules],
            checked.versions,
            [*checked.services, *(service for service in theirs if service.name not in described)],
            inspected,
        )
        return checked

    async def deploy(self, name: str, offer: Offer, place: str) -> Project:
        """Take a project whose bundle was uploaded before; all of it, or nothing.

        Raises `Usage` naming what cannot be taken, `Conflict` when a flow's name is another project's.
        """
        if not re.fullmatch(NAME_PATTERN, name):
            raise Usage(f"a project's name matches {NAME_PATTERN}")
        if not self._blobs.has(offer.bundle):
            raise Usage(f"the bundle {offer.bundle} is not here; upload it first, PUT /artifacts/DIGEST")
        for missing in [flow for flow in offer.flows if not self._blobs.has(flow.fingerprint)]:
            raise Usage(
                f"the manifest {missing.fingerprint!r} of flow {missing.name!r} is not here; upload it first,"
                " PUT /artifacts/DIGEST"
            )
        if not zipfile.is_zipfile(self._blobs.path(offer.bundle)):
            raise Usage(f"the bundle {offer.bundle} is not a zip file")
        checked = check(name, offer, await self._store.flows.list())
        if checked.troubles:
            said = "; ".join(f"{trouble.file}: {trouble.error}" for trouble in checked.troubles)
            raise Conflict(said) if checked.conflicts else Usage(said)
        project = _project(name, DEPLOYED, place, offer, [])
        await self._keep(project, checked.flows, checked.schedules, checked.versions, checked.services)
        return await self.get(name)

    async def note(self, name: str, error: str) -> None:
        """Say of a project that it could not be read; all it had stays as it was."""
        project = await self._store.projects.get(name)
        if project is not None:
            await self._store.projects.note(replace(project, errors=(Trouble("farhand.toml", error),)))
            self._bus.publish(Notice("project"))

    async def _keep(
        self,
        project: Project,
        flows: list[Flow],
        schedules: list[Schedule],
        versions: list[Version],
        services: list[Service],
        inspected: Sequence[str] = (),
    ) -> None:
        now = time.time()
        replaced = self._store.projects.replace(project, flows, schedules, now, versions, services)
        await (replaced if self._consequences is None else self._consequences.of(replaced))
        self._offered(list(inspected), checked_out(await self._store.flows.list()))
        self._scheduler.reload()
        self._bus.publish(Notice("project"))
        self._bus.publish(Notice("schedule"))


def check(project: str, offer: Offer, stored: list[Flow]) -> Checked:
    """What of an offer a server that has ``stored`` flows can take. Of two flows of one name, the first."""
    now = time.time()
    flows: dict[str, Flow] = {}
    schedules: list[Schedule] = []
    services: dict[str, Service] = {}
    troubles, conflicts = list(offer.errors), False
    elsewhere = {flow.name: flow.project for flow in stored if flow.present and flow.project != project}
    for found in offer.flows:
        try:
            _check_name(found, flows, elsewhere, project)
            _check_python(found)
            planned = [schedule_of(project, found, timed) for timed in found.schedules]
            needed = services_of(found, project, offer.bundle, services)
        except FarhandError as error:
            troubles.append(Trouble(found.file, str(error)))
            conflicts = conflicts or isinstance(error, Conflict)
            continue
        flows[found.name] = _flow(project, found, offer.bundle, now)
        schedules += planned
        services |= needed
    taken, offered = list(flows.values()), list(services.values())
    return Checked(taken, schedules, troubles, conflicts, _versions(project, taken, offer, now), offered)


def _versions(project: str, flows: list[Flow], offer: Offer, now: float) -> list[Version]:
    """The graphs of the flows that are declared."""
    documents = {found.name: found.document for found in offer.flows if found.document is not None}
    return [
        version_of(flow, documents[flow.name], f"project {project}", now)
        for flow in flows
        if flow.name in documents
    ]


def version_of(flow: Flow, document: Json, who: str, now: float = 0.0) -> Version:
    """A version of a declared flow, its number yet to be given."""
    return Version(flow.name, 0, etag_of(document), document, flow.bundle, flow.fingerprint, now, who)


def etag_of(document: Json) -> str:
    """What a change may name as the document that it is based on."""
    text = msgspec.json.encode(document, order="sorted")
    return hashlib.sha256(text).hexdigest()[:32]


def check_name(name: str) -> None:
    """Raises `Usage` for what no flow can be called."""
    if re.fullmatch(NAME_PATTERN, name) is None or name in RESERVED_NAMES:
        raise Usage(f"flow {name[:100]!r}: the name cannot be used; it must match {NAME_PATTERN}")


def _check_name(found: Found, flows: dict[str, Flow], elsewhere: dict[str, str], project: str) -> None:
    check_name(found.name)
    if found.name in flows:
        raise Usage(f"flow {found.name!r}: {flows[found.name].file} has that name; rename one of them")
    if found.name in elsewhere:
        raise Conflict(
            f"flow {found.name!r}: projects {elsewhere[found.name]!r} and {project!r} both have one of that"
            " name; rename one of them"
        )


def _check_python(found: Found) -> None:
    try:
        python_fits(found.ask.requires_python, "3.9")
    except BadSpecifier as error:
        raise Usage(f"flow {found.name!r}: its project's requires-python: {error}") from error


def schedule_of(project: str, found: Found, timed: Timed) -> Schedule:
    """The schedule; its id stays the same as long as flow, timing and parameters do."""
    try:
        timing.read(timed.spec)
        parameters.check(found.schema, timed.params)
    except FarhandError as error:
        raise Usage(f"flow {found.name!r}: its schedule cannot be used: {error}") from error
    params = json.dumps(timed.params, separators=(",", ":"), sort_keys=True)
    spec = json.dumps(timed.spec, separators=(",", ":"), sort_keys=True)
    digest = hashlib.sha256(f"{spec}\0{params}".encode()).hexdigest()[:8]
    return Schedule(f"{found.name}.{digest}", found.name, project, timed.spec, params)


def _flow(project: str, found: Found, bundle: str, now: float) -> Flow:
    shared: dict[str, Any] = {
        name: getattr(found, name)
        for name in (
            "name",
            "entry",
            "description",
            "schema",
            "ask",
            "settings",
            "file",
            "tags",
            "fingerprint",
            "git",
        )
    }
    return Flow(project=project, bundle=bundle, updated_at=now, **shared)


def _project(name: str, origin: str, place: str, offer: Offer, troubles: list[Trouble]) -> Project:
    return Project(
        name, origin, place, offer.bundle, offer.size, offer.files, tuple(troubles), tuple(offer.left_out)
    )
