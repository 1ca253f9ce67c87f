"""What flows wrote down while they ran: one line a moment, ``word pid time``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Seen:
    """One line of a witness file."""

    word: str
    pid: int
    at: float


def read(path: Path) -> list[Seen]:
    """Every whole line there is so far."""
    if not path.exists():
        return []
    lines = (line.split() for line in path.read_text().splitlines())
    return [Seen(parts[0], int(parts[1]), float(parts[2])) for parts in lines if len(parts) == 3]


def words(path: Path) -> Counter[str]:
    """How often each word was written."""
    return Counter(seen.word for seen in read(path))


def pids(path: Path) -> list[int]:
    """The processes that wrote, in the order of their first lines."""
    return list(dict.fromkeys(seen.pid for seen in read(path)))
