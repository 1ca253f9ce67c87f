"""Who listens on a port of this machine: what /proc says of sockets, and of the processes that hold them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Collection, Iterable, List, NamedTuple, Optional, Set

from .trees import parents

LINUX = sys.platform.startswith("linux")
_LISTENS = "0A"
_LOOK_S = 0.1
_TABLES = (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6))
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Listener(NamedTuple):
    """A listening socket: the address it is bound to, and the number it has in /proc."""

    host: str
    port: int
    inode: int


class Place(NamedTuple):
    """A port as one process tree has it. ``host`` is where to dial it, None while it does not listen there.

    ``taken``: another process listens there; ``by`` is its id, where that can be seen. ``inode`` is that of
    the socket that listens.
    """

    host: Optional[str]
    taken: bool = False
    by: Optional[int] = None
    inode: Optional[int] = None


def place_of(root: int, port: int) -> Place:
    """How the process ``root`` and all below it have ``port``.

    Without /proc nobody can be told apart from anybody else: whoever listens is taken for it.
    """
    if not LINUX:
        return Place("127.0.0.1")
    found = listeners(port)
    own = held_by(tree_of(root), {each.inode for each in found})
    place = choose(found, own)
    return place._replace(by=_holder(found, own)) if place.taken else place


def choose(found: Iterable[Listener], own: Collection[int]) -> Place:
    """Where to dial, of these listeners, whose sockets are ``own``; a socket that others share is not."""
    listed = list(found)
    others = {each.host for each in listed if each.inode not in own}
    for each in listed:
        if each.inode in own and each.host not in others:
            dialled = _ANY.get(each.host, each.host)
            if dialled not in others:
                return Place(dialled, inode=each.inode)
    return Place(None, bool(others))


def is_still(place: Place, port: int) -> bool:
    """Whether the socket that was found there listens yet; nobody else's has its number."""
    return place.inode is None or any(each.inode == place.inode for each in listeners(port))


def is_free(port: int) -> bool:
    """Whether nobody listens on the port, as far as this machine tells."""
    return not (LINUX and listeners(port))


async def until_free(port: int, within_s: float) -> None:
    """Wait for whoever has the port to let go of it, for so long at most."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while not is_free(port) and loop.time() < end:  # noqa: ASYNC110 - ports do not tell
        await asyncio.sleep(_LOOK_S)


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listeners(port: int) -> List[Listener]:
    """Every socket that listens on the port, on any address."""
    found: List[Listener] = []
    for path, family in _TABLES:
        try:
            with open(path) as file:
                found.extend(parse(file.read(), family, port))
        except OSError:  # a machine without IPv6
            continue
    return found


def parse(text: str, family: int, port: int) -> List[Listener]:
    """The listeners on ``port`` in the text of one of the tables."""
    found: List[Listener] = []
    for line in text.splitlines()[1:]:
        parts = line.split()
        address, _, number = parts[1].partition(":")
        if parts[3] == _LISTENS and int(number, 16) == port:
            found.append(Listener(_address(address, family), port, int(parts[9])))
    return found


def _address(text: str, family: int) -> str:
    """Four bytes a word, each word in the order of this machine."""
    words = [text[at : at + 8] for at in range(0, len(text), 8)]
    raw = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(family, raw)


def tree_of(root: int) -> List[int]:
    """A process and all below it."""
    below = parents()
    tree, seen = [root], {root}
    for pid in tree:
        for child in [child for child, parent in below.items() if parent == pid and child not in seen]:
            seen.add(child)
            tree.append(child)
    return tree


def held_by(pids: Iterable[int], inodes: Set[int]) -> Set[int]:
    """Which of the sockets the processes have open."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: Set[int] = set()
    for pid in pids if wanted else ():
        found.update(wanted[link] for link in _links(pid) if link in wanted)
    return found


def _links(pid: int) -> List[str]:
    links: List[str] = []
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
            except OSError:  # closed meanwhile
                continue
    except OSError:  # gone, or another user's
        return links
    return links


def _holder(found: Iterable[Listener], own: Collection[int]) -> Optional[int]:
    """A process that has a socket which is not ``own``, where that can be seen."""
    others = {each.inode for each in found if each.inode not in own}
    return next((pid for pid in parents() if held_by([pid], others)), None)
