"""The services that the flows of a project need, checked as they come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from ..errors import Usage
from ..model import Service
from ..sdk import servicespec
from .packing import Found, Needed


def services_of(found: Found, project: str, bundle: str, known: Mapping[str, Service]) -> dict[str, Service]:
    """The services of a flow by name; flows of a project may share one of those ``known`` already.

    Raises `Usage` for what cannot be run, and for two of one name that are not the same.
    """
    services: dict[str, Service] = {}
    for needed in found.services:
        service = _service(found, needed, project, bundle)
        earlier = services.get(needed.name) or known.get(needed.name)
        if earlier is not None:
            if (earlier.spec, earlier.ask, earlier.secrets) != (service.spec, service.ask, service.secrets):
                raise Usage(f"flow {found.name!r}: the service {needed.name!r} is described in two ways")
            service = replace(service, flows=tuple(sorted({*earlier.flows, found.name})))
        services[needed.name] = service
    return services


def _service(found: Found, needed: Needed, project: str, bundle: str) -> Service:
    try:
        servicespec.check(needed.name, asdict(needed.spec), list(needed.secrets))
    except Usage as error:
        raise Usage(f"flow {found.name!r}: {error}") from error
    ask = replace(needed.ask, requires_python=found.ask.requires_python, slots=0)
    return Service(
        needed.name,
        project,
        (found.name,),
        needed.spec,
        ask,
        needed.secrets,
        bundle,
        found.fingerprint,
        found.git,
    )
