"""``Service``: a server process that is kept on a worker for a flow; ``service_url``: where it is.

In a script, a test or a notebook nothing is started: there ``service_url`` is what the environment says.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from farhand.errors import NotFound, ServiceUnavailable, Usage

from . import servicespec
from .context import Run, current
from .options import Labels, Names, Options
from .references import ArtifactRef
from .retries import Duration, duration
from .sizes import Size

URL_TIMEOUT_S = 600.0
_WAIT_S = 2.0
"""So long one question waits for an answer; a cancelled run asks no further."""

_PREFIX = "FARHAND_SERVICE_"
_GIVEN_UP = frozenset(["down", "stopped"])


class Service:
    """A server process that a flow needs, as ``@flow(services=[…])`` names it.

    ``command`` is a list of words; no shell reads it. In its words and in the values of ``env``, ``{port}``
    is replaced by the port (a free one where none is given), ``{weights}`` by the path of the file that
    ``weights`` is, ``{code}`` by the directory of the project's files. A first word ``python`` is the
    worker's interpreter. It is healthy once ``health`` answers 200, or, with None, once it listens.

    ``device``, ``runs_on`` and the sizes are those of a task; a service takes no slot. Each of ``secrets`` is
    in its environment, ``hf-token`` as ``HF_TOKEN``. ``stop_timeout`` is what it has between SIGTERM and
    SIGKILL, ``start_timeout`` until it must be healthy, ``health_timeout`` for one answer. ``provides`` is
    the name by which nodes of a declared flow take its address.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        port: Optional[int] = None,
        health: Optional[str] = "/health",
        env: Optional[Mapping[str, str]] = None,
        secrets: Names = None,
        weights: Union[ArtifactRef, str, None] = None,
        device: Labels = None,
        device_policy: str = "require",
        runs_on: str = "any",
        cpus: Optional[int] = None,
        gpus: Optional[int] = None,
        ram: Optional[Size] = None,
        flavor: Optional[str] = None,
        stop_timeout: Duration = 3.0,
        start_timeout: Duration = 600.0,
        health_timeout: Duration = 3.0,
        provides: str = "",
    ) -> None:
        self.name = name
        self.provides = provides
        self._options = Options(
            {
                "secrets": secrets,
                "device": device,
                "device_policy": device_policy,
                "runs_on": runs_on,
                "cpus": cpus,
                "gpus": gpus,
                "ram": ram,
                "flavor": flavor,
            }
        )
        self.spec: Dict[str, Any] = {
            "command": command if isinstance(command, str) else list(command),
            "port": port,
            "health": health,
            "env": dict(env or {}),
            "weights": weights.digest if isinstance(weights, ArtifactRef) else weights or "",
            "stop_s": duration("stop_timeout", stop_timeout),
            "start_s": duration("start_timeout", start_timeout),
            "health_timeout_s": duration("health_timeout", health_timeout),
        }
        servicespec.check(name, self.spec, self._options.secrets)

    def described(self) -> Dict[str, Any]:
        """What a server has to know of it."""
        return {
            "name": self.name,
            "spec": self.spec,
            "ask": self._options.ask(),
            "secrets": self._options.secrets,
        }

    def __repr__(self) -> str:
        return f"<service {self.name}>"


def listed(given: Any) -> List[Service]:
    """The services that a flow was decorated with. Raises `Usage`."""
    services: List[Any] = [given] if isinstance(given, Service) else list(given or ())
    for service in services:
        if not isinstance(service, Service):
            raise Usage(f"services must be a list of Service(…), not {service!r}")
    return services


def service_url(service: Union[Service, str], timeout: Optional[Duration] = URL_TIMEOUT_S) -> str:
    """The address of a service, such as ``http://gpu-box:8000``, once it is healthy.

    Waits for that, for ``timeout`` at most, or for ever with None. Raises `ServiceUnavailable` when it is
    not by then, or when it is down or was stopped; `NotFound` when the server has no such service. Outside
    of a server it is that of the environment variable ``FARHAND_SERVICE_<NAME>``.
    """
    name = service.name if isinstance(service, Service) else service
    frame = current()
    if frame is None or frame.run.ask is None:
        return _from_environment(name)
    limit_s = None if timeout is None else duration("timeout", timeout)
    return _wait(frame.run, name, limit_s)


def _wait(run: Run, name: str, limit_s: Optional[float]) -> str:
    assert run.ask is not None
    until = None if limit_s is None else time.monotonic() + limit_s
    while True:
        left_s = _WAIT_S if until is None else until - time.monotonic()
        found = run.ask("service", {"name": name, "wait_s": max(0.0, min(left_s, _WAIT_S))})
        if found["state"] == "healthy" and found["url"]:
            return str(found["url"])
        run.check()
        if found["state"] in _GIVEN_UP or left_s <= 0:
            after = "" if found["state"] in _GIVEN_UP else f" after {limit_s:g} s"
            raise ServiceUnavailable(
                f"the service {name!r} is {found['state']}{after}: {found['message']}", state=found["state"]
            )


def _from_environment(name: str) -> str:
    variable = _PREFIX + re.sub("[^A-Z0-9]", "_", name.upper())
    url = os.environ.get(variable)
    if url is None:
        raise NotFound(
            f"no service {name!r} runs here: outside of a server its address is read from the environment, "
            f"so set {variable}"
        )
    return url
