"""Services: what is to be kept on workers, as the flows that are offered say, and what people order.

What they run as, and what becomes of that, is in `service_jobs`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import Conflict
from ..model import Attempt, Json, Service
from .answers import Answer
from .attempts import attempt_of, unheard_of
from .changes import Changes, Effects
from .database import Database
from .guard import Connection
from .moves import LIVE
from .rows import ATTEMPTS, SERVICES
from .service_jobs import anchor_of, begin, end_job, open_job
from .service_moves import change_service, known_service, load_service

__all__ = ["Services", "anchor_of", "replace_services", "replace_services_of"]


class Services:
    """Services by name, and what people order them to do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, name: str) -> Service | None:
        """The service, or None; one whose flows are gone is still known."""
        return await self._database.read(lambda connection: load_service(connection, name))

    async def list(self) -> list[Service]:
        """Every service whose flows are offered, or that has not ended yet, by name."""
        sql = (
            f"SELECT {SERVICES.columns} FROM services"
            " WHERE present = 1 OR state NOT IN ('stopped', 'down') ORDER BY name"
        )
        return await self._database.read(
            lambda connection: [SERVICES.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def attempts(self, name: str, limit: int) -> list[Attempt]:
        """The latest starts of a service, the newest first."""
        sql = (
            f"SELECT {ATTEMPTS.columns} FROM attempts WHERE job IN (SELECT id FROM jobs WHERE run = ?)"
            " ORDER BY lease DESC LIMIT ?"
        )
        anchor = anchor_of(name)

        def read(connection: Connection) -> list[Attempt]:
            rows = connection.execute(sql, (anchor, limit)).fetchall()
            latest = map(attempt_of, unheard_of(connection, "run = ?", (anchor,)))
            return [*latest, *map(ATTEMPTS.load, rows)][:limit]

        return await self._database.read(read)

    def start(self, name: str, now: float) -> Answer[Changes]:
        """Start a service that was stopped or is down; nothing happens to one that is to run already.

        Raises `NotFound`, or `Conflict` when no flow that is offered has it any more.
        """

        def write(connection: Connection) -> Changes:
            effects, service = Effects(), known_service(connection, name)
            if not service.present:
                raise Conflict(f"no flow that this server offers has the service {name!r} any more")
            job = open_job(connection, service)
            service = change_service(connection, service, wanted=True)
            if job is None:
                begin(connection, effects, service, now)
            return effects.freeze()

        return self._database.submit(write)

    def stop(self, name: str, now: float) -> Answer[Changes]:
        """Stop a service, until somebody starts it; once more is harmless. Raises `NotFound`."""

        def write(connection: Connection) -> Changes:
            effects, service = Effects(), known_service(connection, name)
            end_job(connection, effects, change_service(connection, service, wanted=False), now)
            return effects.freeze()

        return self._database.submit(write)


# ---------------------------------------------------------------- what is offered


def replace_services(
    connection: Connection, effects: Effects, project: str, services: list[Service], now: float
) -> None:
    """Store what the flows of a project need now: new ones begin, what nobody needs any more is stopped.

    One that is described otherwise now is stopped, and begins anew; other code alone changes nothing about
    what runs. Raises `Conflict` when another project has a service of the same name.
    """
    wanted = {service.name for service in services}
    for service in services:
        _offer(connection, effects, replace(service, project=project), now)
    rows = connection.execute(
        f"SELECT {SERVICES.columns} FROM services WHERE project = ? AND present = 1", (project,)
    ).fetchall()
    for gone in [service for service in map(SERVICES.load, rows) if service.name not in wanted]:
        _withdraw(connection, effects, gone, now)


def replace_services_of(
    connection: Connection, effects: Effects, flow: str, project: str, services: list[Service], now: float
) -> None:
    """As `replace_services`, of one flow that was put, or is deleted; those of others go on.

    Raises `Conflict` when another flow has a service of the same name.
    """
    wanted = {service.name for service in services}
    rows = connection.execute(
        f"SELECT {SERVICES.columns} FROM services WHERE project = ? AND present = 1", (project,)
    ).fetchall()
    for known in map(SERVICES.load, rows):
        if flow not in known.flows:
            if known.name in wanted:
                raise Conflict(
                    f"flow {known.flows[0]!r} has a service named {known.name!r} already; rename one of them"
                )
        elif known.name not in wanted:
            _withdraw(connection, effects, known, now)
    for service in services:
        _offer(connection, effects, replace(service, project=project), now)


def _withdraw(connection: Connection, effects: Effects, service: Service, now: float) -> None:
    """Nobody needs it any more."""
    end_job(connection, effects, change_service(connection, service, present=False), now)
    connection.execute("UPDATE runs SET ended_at = ? WHERE id = ?", (now, anchor_of(service.name)))


def _offer(connection: Connection, effects: Effects, offered: Service, now: float) -> None:
    known = load_service(connection, offered.name)
    if known is not None and known.present and known.project != offered.project:
        raise Conflict(
            f"projects {known.project!r} and {offered.project!r} both have a service named {offered.name!r}; "
            "rename one of them"
        )
    if known is None:
        known = replace(offered, created_at=now, updated_at=now, since=now)
        connection.execute(SERVICES.insert, SERVICES.dump(known))
        begin(connection, effects, known, now)
        return
    same = known.present and _described(known) == _described(offered)
    told = ("project", "flows", "spec", "ask", "secrets", "bundle", "fingerprint", "git")
    columns: Json = {name: getattr(offered, name) for name in told}
    columns["wanted"] = known.wanted or not known.present
    service = change_service(connection, known, present=True, updated_at=now, **columns)
    if same or not service.wanted:
        return
    job = open_job(connection, service)
    if job is not None:
        end_job(connection, effects, service, now)  # a live one begins anew once it has ended
    if job is None or job.state not in LIVE:
        begin(connection, effects, known_service(connection, service.name), now)


def _described(service: Service) -> tuple[Any, ...]:
    return service.spec, service.ask, service.secrets
