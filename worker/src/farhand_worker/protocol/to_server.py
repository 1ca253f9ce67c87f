"""What an agent says to the server, and what such a message is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, List, Optional


@dataclass(frozen=True)
class Held:
    """A job an agent still answers for. ``ended`` means only its spool is left to send.

    ``rode_outage``: it ran on past its lease because connections were refused, as by a dead server. A
    firewall that refuses looks the same, so the server marks the attempt: another may have overlapped.
    """

    job: str
    lease: int
    started_at: Optional[float] = None
    ended: bool = False
    rode_outage: bool = False


@dataclass(frozen=True)
class Hello:
    """Who dials. ``swept`` names the instance that this one has proved gone from its state directory.

    ``inventory`` is an `Inventory` as a dict. ``status_url`` is where its own status page is, as seen from
    its machine; ``service_host`` the name by which others reach the services it keeps; ``shared_paths`` the
    directories that lie on the same storage as the server's under the same path. ``checkout`` is the
    directory with its own copy of the code that it works in, at ``git``; ``environment`` the digest of what
    is installed there, once that is known; ``ends_at`` when its machine is taken away, where that is known.
    ``hosts`` says that it can keep services, ``tunnels`` that it dials again for whoever uses those, and
    ``several`` that it reads `Several`. ``ahead`` is how many jobs it takes for each slot behind the one
    that runs there.
    """

    type: ClassVar[str] = "hello"
    protocol: List[int]
    version: str
    name: str
    instance: str
    boot_id: str
    host: str
    python: str
    parallel: int
    labels: Optional[List[str]] = None
    held: List[Dict[str, Any]] = field(default_factory=list)
    swept: Optional[str] = None
    session_key: Optional[str] = None
    incarnation: Optional[str] = None
    draining: bool = False
    inventory: Optional[Dict[str, Any]] = None
    status_url: Optional[str] = None
    service_host: Optional[str] = None
    shared_paths: List[str] = field(default_factory=list)
    checkout: Optional[str] = None
    git: str = ""
    environment: str = ""
    ends_at: Optional[float] = None
    hosts: bool = False
    tunnels: bool = False
    several: bool = False
    ahead: int = 0


@dataclass(frozen=True)
class Heartbeat:
    """The agent is there.

    ``at`` is its wall clock when it sent this, to show how far off that is. ``behind`` names the jobs of
    which something waits to be recorded: their silence proves nothing.
    """

    type: ClassVar[str] = "heartbeat"
    n: int
    at: Optional[float] = None
    behind: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Accepted:
    """The agent holds the job; ``started_at`` is set when user code has already begun."""

    type: ClassVar[str] = "accepted"
    job: str
    lease: int
    started_at: Optional[float] = None


@dataclass(frozen=True)
class Event:
    """A batch of reports: ``events[i]`` has the number ``first + i`` and is ``[kind, body, digests?]``."""

    type: ClassVar[str] = "event"
    job: str
    lease: int
    source: str
    first: int
    events: List[List[Any]]


@dataclass(frozen=True)
class Request:
    """Asks for something a job needs.

    Kind ``checkpoints``: ``args = {"after": n}``. Kinds ``secret`` and ``variable``: ``args = {"name": …}``,
    answered by ``{"value": …}``; a secret only where the job's flow or task declares it.
    """

    type: ClassVar[str] = "request"
    id: str
    job: str
    lease: int
    kind: str
    args: Dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Drained:
    """The worker takes nothing new and holds nothing any more, not even a report."""

    type: ClassVar[str] = "drained"


@dataclass(frozen=True)
class Changed:
    """What is around the worker is another than before: what is installed, or what is checked out.

    ``environment`` is the new digest; ``installed`` says what was added, removed or is of another version, as
    far as that is known. ``differs`` has, for every fingerprint that it was asked to compare,
    the files that differ (none: the checkout has that code), up to 20 of them; ``git`` is branch and commit.
    ``trouble`` is why it can take nothing now, and empty once it can again; a session begins without any.
    """

    type: ClassVar[str] = "changed"
    environment: Optional[str] = None
    installed: Optional[List[str]] = None
    git: Optional[str] = None
    differs: Optional[Dict[str, List[str]]] = None
    trouble: Optional[str] = None


@dataclass(frozen=True)
class NoTunnel:
    """The `Tunnel` with this id is not dialled, and why."""

    type: ClassVar[str] = "no_tunnel"
    id: str
    message: str


@dataclass(frozen=True)
class Bye:
    type: ClassVar[str] = "bye"
    reason: str
