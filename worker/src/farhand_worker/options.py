"""What a worker is told to do, as the agent uses it: read once from the settings, before anything runs."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Tuple

from .address import Address, BadAddress, parse
from .allocation import Allocation, allocation
from .blobs import BYTES_MAX
from .credential import credential
from .interpreter import interpreter
from .inventory import Said, detect, here
from .machine import Inventory
from .proxies import proxy_for
from .settings import Values
from .usage import Usage

_log = logging.getLogger("farhand.worker")


@dataclass(frozen=True)
class Options:
    """What is decided for the whole life of an agent. ``address`` is asked before every dial.

    ``beside_server``: it is the server's own, on the server's machine. ``relayed``: what it dials is no
    server, so that a refused connection is no evidence of one that is away. ``passing``: nobody comes back to
    its state directory, which is one of a batch scheduler's job and was not chosen.
    """

    address: Callable[[], Address]
    token: str
    name: str
    state_dir: Path
    pin: Optional[str] = None
    parallel: int = 1
    labels: Optional[List[str]] = None
    python: str = ""
    python_version: str = ""
    inventory: Inventory = field(default_factory=Inventory)
    found_by: Mapping[str, str] = field(default_factory=dict)
    shared_paths: Tuple[str, ...] = ()
    artifacts: Optional[Address] = None
    artifact_cache: Optional[Path] = None
    artifact_cache_bytes: int = BYTES_MAX
    service_host: Optional[str] = None
    max_idle_s: Optional[float] = None
    pass_env: Tuple[str, ...] = ()
    status_host: str = "127.0.0.1"
    status_port: int = 0
    cwd: Optional[Path] = None
    checkout: Optional[Path] = None
    orphan_s: Optional[float] = None
    allocation: Optional[Allocation] = None
    relayed: bool = False
    beside_server: bool = False
    passing: bool = False


def options(values: Values, code: str = "") -> Options:
    """The options that these settings make; ``code`` is that of an invitation.

    Raises `Usage` for what cannot be used, `NotInvited` and `NoExchange` for a code that buys no token.
    """
    name: str = values["name"] or socket.gethostname()
    python = interpreter(values["python"])
    around = here()
    found = detect(around, _said(values.by_flag), _said(values.otherwise))
    warn_of_crowding(values["parallel"], around.cores)
    address, artifacts, cwd = _address(values), _artifacts(values), _directory(values["cwd"])
    _tell_of_proxies(None if values["url_file"] else address(), artifacts)
    trusted = credential(values, address, code)
    beside_server = values["orphan_s"] is not None
    # A server's own worker is no allocation's, wherever the server was started.
    allocated = None if beside_server else allocation(os.environ)
    return Options(
        address=address,
        token=trusted.token,
        pin=trusted.pin,
        name=name,
        state_dir=Path(values["state_dir"] or _default_state(name)).absolute(),
        parallel=values["parallel"],
        labels=values["labels"],
        python=python.path,
        python_version=python.version,
        inventory=found.inventory,
        found_by=found.sources,
        shared_paths=tuple(values["shared_paths"]),
        artifacts=artifacts,
        artifact_cache=Path(values["artifact_cache"]).absolute() if values["artifact_cache"] else None,
        artifact_cache_bytes=values["artifact_cache_bytes"],
        service_host=values["service_host"],
        max_idle_s=values["max_idle"],
        pass_env=tuple(values["pass_env"]),
        status_host=values["status_host"],
        status_port=values["status_port"],
        cwd=cwd,
        checkout=_checkout(values["checkout"]),
        orphan_s=values["orphan_s"],
        allocation=allocated,
        relayed=values["relay_file"] is not None,
        beside_server=beside_server,
        passing=allocated is not None and not values["state_dir"],
    )


def _tell_of_proxies(*addresses: Optional[Address]) -> None:
    """Say what leads to the server, if not the network alone. Raises `BadProxy`."""
    proxies = [proxy_for(address) for address in addresses if address is not None]
    for text in sorted({proxy.text for proxy in proxies if proxy is not None}):
        _log.info("by way of the proxy %s", text)


def _said(value: Callable[[str], Optional[int]]) -> Said:
    return Said(value("cpus"), value("gpus"), value("ram_mb"))


def _address(values: Values) -> Callable[[], Address]:
    """How to learn the address: fixed, or from a file that the server, or a relay, rewrites at each start."""
    insecure: bool = values["insecure"]
    if values["url_file"] is not None:
        path = Path(values["url_file"])
        return lambda: _read_address(path, insecure)
    if values["url"] is None:
        raise Usage("the server's address is needed: --url https://HOST[:PORT][/BASE]")
    fixed = parse(values["url"], insecure)
    if values["relay_file"] is not None:
        return lambda: _relay(Path(values["relay_file"]), fixed, insecure)._replace(beside=True)
    return lambda: fixed


def _relay(path: Path, fixed: Address, insecure: bool) -> Address:
    """Where the relay is now, if this machine sees what it wrote; else where it was, which it keeps to."""
    try:
        return parse(path.read_text(), insecure)
    except OSError:
        return fixed


def _read_address(path: Path, insecure: bool) -> Address:
    try:
        return parse(path.read_text(), insecure)
    except OSError as error:
        raise BadAddress(f"cannot read {path}: {error.strerror}") from error


def _artifacts(values: Values) -> Optional[Address]:
    url: Optional[str] = values["artifact_url"]
    return None if url is None else parse(url, values["insecure"])


def _default_state(name: str) -> Path:
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    return Path(tempfile.gettempdir()) / f"farhand-worker-{os.getuid()}-{safe}"


def _directory(text: Optional[str]) -> Optional[Path]:
    if text is None:
        return None
    path = Path(text).absolute()
    if not path.is_dir():
        raise Usage(f"--cwd: {text} is no directory")
    return path


def _checkout(text: Optional[str]) -> Optional[Path]:
    if text is None:
        return None
    path = Path(text).expanduser().absolute()
    if not path.is_dir():
        raise Usage(f"{text} is no directory; name this machine's checkout, or none to have code sent")
    return path


def warn_of_crowding(parallel: int, cores: Optional[int]) -> None:
    """Say in the log that there are more slots than cores."""
    if cores is not None and parallel > cores:
        _log.warning("--parallel %d is above the %d cores here; the jobs will share them", parallel, cores)
