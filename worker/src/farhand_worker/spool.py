"""Spools: the files that hold a job's reports until the server has recorded them.

A spool is one line per event, numbered from 1. The engine writes its own; the agent writes one for what it
knows itself (raw output, the end of the engine). Both are read here, in batches, from the file: nothing is
kept in memory but where the sent and the recorded parts end. A last line without its newline is not there
yet, or was torn by a kill; it is never sent. A file that was used before begins with an empty line.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from pathlib import Path
from typing import AbstractSet, Deque, List, NamedTuple, Optional, Set, Tuple, Union

from .clock import wall_now
from .protocol import BATCH_BYTES, FINAL, FRAME_BYTES_MAX, Log, Result, as_dict, dumps
from .spares import HEAD, Spares
from .spool_writer import opened

WINDOW = 4
"""Batches of one source that may be on their way, unacknowledged."""

UPLOADS_AHEAD = 4
"""So many values are on their way before the lines that name them have their turn."""

_READ_BYTES = 2 * BATCH_BYTES
_LEAST_BYTES = 4096
_LOOK_BYTES = 16 * 1024
_FINAL_HEADS = tuple(f'["{kind}"'.encode() for kind in FINAL)
_STARTED_HEAD = b'["started"'
_RESULT_HEAD = b'["result"'
_COMPLETED_HEAD = b'["result",{"state":"completed",'
_ARTIFACT_HEAD = b'["artifact"'
_NAMES_END = b"]]"
_NAMED_HEAD, _NAMED_TAIL = b'},["', b'"]]'
_NAMED = re.compile(rb'sha256:[0-9a-f]{64}(?:","sha256:[0-9a-f]{64})*')
"""The digests at the end of a line, with what is between them."""
_AT = re.compile(rb'"at": ?([0-9.e+]+)')
_AT_WITHIN = 80
_LINE_BYTES_MAX = FRAME_BYTES_MAX - 4096


class Batch(NamedTuple):
    """Consecutive lines of one spool; the first has the number ``first``, the last ends at byte ``end``."""

    first: int
    lines: List[str]
    end: int


class SpoolReader:
    """Reads one spool from where the server's record of it ends."""

    acked = acked_offset = 0
    sent = sent_offset = 0
    size = 0
    limit: Optional[int] = None
    _begin = 0
    """Where the first line is."""
    _fd: Optional[int] = None
    _whole = -1
    """The size at which it was seen to end with a whole line."""
    _seen: Tuple[int, bytes] = (0, b"")
    """What `look` has read, and where that begins: whole lines up to the end of the file."""

    def __init__(self, path: Union[str, Path]) -> None:
        self.path = path
        self.files: Set[str] = set()
        self._marks: Deque[Tuple[int, int]] = deque()

    def grow(self) -> int:
        """Look how far the file goes now, and say so."""
        try:
            self.size = os.fstat(self._file()).st_size
        except FileNotFoundError:
            self.size = 0
        if self.limit is not None:
            self.size = min(self.size, self.limit)
        return self.size

    def look(self) -> int:
        """`grow`, by reading what is there to be sent next: mostly that is little, and all there is."""
        if self.limit is not None:
            return self.grow()
        try:
            found = os.pread(self._file(), _LOOK_BYTES, self.sent_offset)
        except FileNotFoundError:
            return self.grow()
        if len(found) == _LOOK_BYTES:
            return self.grow()
        self.size = self.sent_offset + len(found)
        if found.endswith(b"\n"):
            self._seen, self._whole = (self.sent_offset, found), self.size
        return self.size

    def _seen_from(self, offset: int) -> bytes:
        """What `look` has read from ``offset`` on, if that is all there was when last looked."""
        begin, found = self._seen
        return found if begin == offset and begin + len(found) == self.size else b""

    @property
    def drained(self) -> bool:
        """Whether every whole line seen by `grow` has been sent."""
        if self.sent_offset >= self.size:
            return True
        return self._whole != self.size and not self._lines(self.sent_offset, 1)[0]

    @property
    def settled(self) -> bool:
        """Whether everything that was sent is recorded, and everything was sent."""
        return self.acked == self.sent and self.drained

    @property
    def unsent_bytes(self) -> int:
        """How much of what `grow` has seen was not sent."""
        return self.size - self.sent_offset

    @property
    def is_full(self) -> bool:
        """Whether nothing more is sent before something is recorded."""
        return len(self._marks) >= WINDOW

    def next_at(self) -> Optional[float]:
        """When what is to be sent next happened, if it says so."""
        if self.sent_offset >= self.size:
            return None
        lines, _ = self._lines(self.sent_offset, 1)
        return _at(lines[0]) if lines else None

    def next_batch(
        self, uploaded: AbstractSet[str], final: bool, until: Optional[float] = None
    ) -> Tuple[Optional[Batch], List[str]]:
        """The next lines to send, if any can be, and the digests that must be uploaded for those that follow.

        A final event goes out last, and only when ``final`` says that its time has come. What happened
        after ``until`` stays.
        """
        if self.sent_offset >= self.size or self.is_full:
            return None, []
        lines, offset = self._lines(self.sent_offset, BATCH_BYTES)
        chosen: List[str] = []
        wanted: List[str] = []
        for number, line in enumerate(lines):
            if not final and line.startswith(_FINAL_HEADS):
                break
            if until is not None and (_at(line) or until) > until:
                break
            if len(line) > _LINE_BYTES_MAX:
                chosen.append(_too_long(line))
                offset += len(line) + 1
                break
            if line.endswith(_NAMES_END) and any(digest not in uploaded for digest in _digests(line)):
                wanted = _missing(lines[number:], uploaded)
                self.files.update(_named_by_artifacts(lines[number:]))
                break
            chosen.append(line.decode("utf-8", "replace"))
            offset += len(line) + 1
        return (Batch(self.sent + 1, chosen, offset) if chosen else None), wanted

    def mark_sent(self, batch: Batch) -> None:
        """The batch has gone out; the next one follows it."""
        self.sent += len(batch.lines)
        self.sent_offset = batch.end
        self._marks.append((self.sent, batch.end))

    def acknowledge(self, number: int) -> bool:
        """Everything up to ``number`` is recorded; says whether that is news."""
        before = self.acked
        while self._marks and self._marks[0][0] <= number:
            self.acked, self.acked_offset = self._marks.popleft()
        return self.acked > before

    def rewind(self, recorded: int) -> None:
        """A new session: send again from the line after ``recorded``."""
        self._marks.clear()
        if recorded < self.acked:
            self.acked, self.acked_offset = 0, self._begin
        while self.acked < recorded:
            lines, offset = self._lines(self.acked_offset, BATCH_BYTES)
            if not lines:
                break
            for line in lines[: recorded - self.acked]:
                self.acked += 1
                offset += len(line) + 1
            self.acked_offset = offset
        self.sent, self.sent_offset = self.acked, self.acked_offset

    def final(self) -> Optional[Tuple[int, bytes]]:
        """The final event the file ends with, as its line, and the byte it begins at, if it does."""
        end = self.look()
        seen = self._seen_from(self.sent_offset)
        if seen:
            begin = seen.rfind(b"\n", 0, -1) + 1
            last = seen[begin:-1]
            return (self.sent_offset + begin, last) if last.startswith(_FINAL_HEADS) else None
        tail, start = b"", end
        while start > 0 and tail.count(b"\n") < 3:
            step = min(_READ_BYTES, start)
            start -= step
            tail = os.pread(self._file(), step, start) + tail
        *lines, torn = tail.split(b"\n")
        if not torn:
            self._whole = end
        if not lines or not lines[-1].startswith(_FINAL_HEADS):
            return None
        begin = start + sum(len(line) + 1 for line in lines[:-1])
        return begin, lines[-1]

    def started_at(self) -> Optional[float]:
        """When user code began, if this spool says so; it does in one of its first lines."""
        for line in self._lines(self._begin, BATCH_BYTES)[0]:
            if line.startswith(_STARTED_HEAD):
                return float(json.loads(line)[1]["at"])
        return None

    def create(self, spares: Optional[Spares] = None) -> None:
        """Have the file, empty, and keep it open: one that was ready, or a new one. Raises OSError."""
        self._fd = None if spares is None else spares.take(self.path)
        if self._fd is None:
            self._fd = opened(self.path, os.O_RDWR)
        else:
            self._begin_after_head()

    def give_back(self, spares: Spares) -> bool:
        """Have the file used again, as nobody writes to it or reads it any more; whether it is."""
        if self._fd is None or not spares.give_back(self.path, self._fd):
            return False
        self._fd = None
        return True

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read_from(self, fd: int) -> None:
        """Read another file from now on, which goes on where this one ends; it is closed with this."""
        self.close()
        self._fd = fd

    def _file(self) -> int:
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            if os.pread(self._fd, len(HEAD), 0) == HEAD:
                self._begin_after_head()
        return self._fd

    def _begin_after_head(self) -> None:
        """There is a line before the first: none of it is sent, nor was."""
        self._begin = len(HEAD)
        self.acked_offset = max(self.acked_offset, self._begin)
        self.sent_offset = max(self.sent_offset, self._begin)
        self.size = max(self.size, self._begin)

    def _lines(self, offset: int, budget: int) -> Tuple[List[bytes], int]:
        """Whole lines from ``offset`` on: at least one if there is one, up to about ``budget`` bytes."""
        seen = self._seen_from(offset)
        if seen:
            lines = seen[:-1].split(b"\n")
            return lines if len(seen) <= budget else _first(lines, budget), offset
        wanted = min(max(min(budget, self.size - offset), _LEAST_BYTES), _READ_BYTES)
        try:
            fd = self._file()
        except FileNotFoundError:
            return [], offset
        while True:
            length = wanted if self.limit is None else min(wanted, max(0, self.limit - offset))
            chunk = os.pread(fd, length, offset) if length else b""
            if b"\n" in chunk:
                break
            if len(chunk) < wanted:
                return [], offset
            wanted *= 4
        return _first(chunk[: chunk.rindex(b"\n")].split(b"\n"), budget), offset


def end_of(line: bytes) -> Tuple[str, str]:
    """The state, or the reason, that a final event names, and its message."""
    if line.startswith(_COMPLETED_HEAD):
        return "completed", ""  # said without a message; its value, which may be long, is not parsed
    body = json.loads(line)[1]
    return str(body.get("state") or body.get("reason")), str(body.get("message") or "")


def _first(lines: List[bytes], budget: int) -> List[bytes]:
    """The first lines, up to about ``budget`` bytes of them."""
    size = 0
    for taken, line in enumerate(lines):
        size += len(line) + 1
        if taken and size > budget:
            return lines[:taken]
    return lines


def _at(line: bytes) -> Optional[float]:
    """When an event happened; most say so, at their beginning."""
    found = _AT.search(line, 0, _AT_WITHIN)
    return float(found[1]) if found is not None else None


def _too_long(line: bytes) -> str:
    """What is sent for an event that fits no frame: its place is kept, and the attempt is not stuck."""
    text = f"a report of {len(line)} bytes was too large to be sent"
    if line.startswith(_RESULT_HEAD):
        return dumps([Result.kind, as_dict(Result("failed", wall_now(), "too_large", text))])
    return dumps([Log.kind, as_dict(Log(wall_now(), text, "log", "error"))])


def _missing(lines: List[bytes], uploaded: AbstractSet[str]) -> List[str]:
    """What the first of some lines waits for, and ahead of their time a few of what the others do."""
    missing: List[str] = []
    for line in lines:
        if len(missing) >= UPLOADS_AHEAD:
            break
        missing += [digest for digest in _digests(line) if digest not in uploaded]
    return missing


def _named_by_artifacts(lines: List[bytes]) -> Set[str]:
    """The files that user code has saved, and may have the path of."""
    return {digest for line in lines if line.startswith(_ARTIFACT_HEAD) for digest in _digests(line)}


def _digests(line: bytes) -> List[str]:
    """The digests an event names. An event without them ends with its body, so it is not parsed.

    Nor is one that ends with them as engines write them: a line that waits is looked at again and again.
    """
    if not line.endswith(_NAMES_END):
        return []
    named = line[line.rfind(_NAMED_HEAD) + len(_NAMED_HEAD) : -len(_NAMED_TAIL)]
    if line.endswith(_NAMED_TAIL) and _NAMED.fullmatch(named):
        return named.decode().split('","')
    event = json.loads(line)
    return [str(digest) for digest in event[2]] if len(event) > 2 else []
