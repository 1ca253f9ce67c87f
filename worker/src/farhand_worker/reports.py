"""The reports of one attempt: its two spools, and the order in which the server gets them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from .clock import wall_now
from .protocol import AGENT, ENGINE, SPOOL_BYTES_MAX, URGENT, Exit, Held, Log, Started, as_dict
from .spares import Spares
from .spool import Batch, SpoolReader, end_of
from .spool_writer import SpoolWriter

WRITE_AGAIN_S = 1.0
"""So long after a disk had no room for what must be written it is tried again."""

BY_TIME_BYTES_MAX = 2048
"""So much of the agent's own lines is put between those of the engine by their times."""

HOLD_S = 0.03
"""So long lines wait for the value that a later one names: mostly that is uploaded by then."""

_URGENT_HEADS = tuple(f'["{kind}"' for kind in URGENT)
_SUFFIX = ".engine"
LOST_VALUE = "a value it had saved is no longer on this worker's disk"


Turn = Tuple[str, str, Optional[float]]
"""A source, the other one, and the moment up to which its lines go."""

_ENGINE_ALONE: Sequence[Turn] = ((ENGINE, AGENT, None),)
_AS_THEY_COME: Sequence[Turn] = ((AGENT, ENGINE, None), *_ENGINE_ALONE)


class Outgoing(NamedTuple):
    """A batch to send: what `protocol.encode_events` needs."""

    source: str
    first: int
    lines: List[str]


class Reports:
    """What one attempt has to say, from its first line to the acknowledgement of its last.

    The server ends the attempt at its final event and believes nothing after it. So a final event goes
    out only when the attempt has been sealed and everything else, of both sources, is on its way: the
    engine's `Result` after the agent's lines, the agent's `Exit` after the engine's.
    """

    fresh = sealed = gone = False
    end = ("", "")
    _dropped = 0
    _started_at: Optional[float] = None
    _held_at: Optional[float] = None
    _in_vain: Tuple[int, ...] = ()
    """What was known when there was nothing to send but what waits for an upload, or what is held for it."""

    def __init__(
        self,
        directory: Path,
        outgoing: Path,
        job: str,
        lease: int,
        bytes_max: int = SPOOL_BYTES_MAX,
        not_written: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self.job = job
        self.lease = lease
        self.engine_path = f"{directory}/{job}-{lease}{_SUFFIX}"
        self._agent_path = f"{directory}/{job}-{lease}.agent"
        self.outgoing = f"{outgoing}/{job}-{lease}"
        self._sources = {ENGINE: SpoolReader(self.engine_path), AGENT: SpoolReader(self._agent_path)}
        self._writer = SpoolWriter(self._agent_path)
        self.bytes_max = bytes_max
        self._not_written = not_written
        self.uploaded: Set[str] = set()
        self.wanted: List[str] = []
        self.lost: Set[str] = set()

    # ------------------------------------------------------------ writing

    def create(self, spares: Optional[Spares] = None) -> None:
        """Have a file for what the engine will say, by which the next agent knows of the attempt, whatever
        happens to this one. Raises OSError.
        """
        self._sources[ENGINE].create(spares)
        self.fresh = True

    def log(self, lines: List[str], stream: str = "stdout", level: str = "info") -> None:
        """Add lines of output. When the spool or the disk is full they are dropped and counted."""
        if self.sealed or self.gone or not lines:
            return
        at = wall_now()
        reader = self._sources[AGENT]
        if reader.size - reader.acked_offset > self.bytes_max:
            self._dropped += len(lines)
            return
        events = [(Log.kind, as_dict(Log(at, line, stream, level))) for line in lines]
        if self._dropped:
            text = f"{self._dropped} lines dropped here: they came faster than they could be sent or kept"
            events.insert(0, (Log.kind, as_dict(Log(at, text, stream, "warning"))))
        try:
            reader.size = self._writer.write(events)
            self._dropped = 0
        except OSError as error:
            self._dropped += len(lines)
            self._not_written(error)

    def tell(self, event: Any) -> None:
        """Add what the agent itself has seen of the job. Raises OSError when it cannot be written."""
        if not (self.sealed or self.gone):
            self._sources[AGENT].size = self._writer.write([(event.kind, as_dict(event))])
            if event.kind == Started.kind:
                self._started_at = event.at

    async def seal_at_last(self, end: Exit, keep_result: bool = True) -> None:
        """`seal`, in memory where the disk is full: without that the job would not be seen to end. If this
        agent ends as well, the next one says that.
        """
        while not self.gone:
            try:
                self._seal_somewhere(end, keep_result)
                break
            except OSError:
                await asyncio.sleep(WRITE_AGAIN_S)

    def _seal_somewhere(self, end: Exit, keep_result: bool = True) -> None:
        try:
            self.seal(end, keep_result)
        except OSError as error:
            self._not_written(error)
            copy = self._writer.go_on_in_memory()
            if copy is None:
                raise
            self._sources[AGENT].read_from(copy)
            said = f"{end.message} (its worker's disk: {error.strerror or error})"
            self.seal(replace(end, message=said), keep_result)

    def seal(self, end: Exit, keep_result: bool = True) -> None:
        """Nothing more will be written: ``end`` is how it ended unless the engine has left a result.

        With ``keep_result`` false only a completed result counts; user code that was told to stop for
        the worker's sake has not been cancelled. Raises OSError when the end cannot be written.
        """
        if self.seal_result(keep_result):
            return
        engine = self._sources[ENGINE]
        final = engine.final()
        if final is not None:
            engine.limit = final[0]
            engine.grow()
        self._sources[AGENT].size = self._writer.write([(Exit.kind, as_dict(end))])
        self.end = end.reason, end.message
        self.sealed = True

    def seal_result(self, keep_result: bool = True) -> bool:
        """The same if the engine has left a result that counts; says whether. Writes nothing."""
        final = None if self.gone else self._sources[ENGINE].final()
        end = None if final is None else end_of(final[1])
        if end is None or not (keep_result or end[0] == "completed"):
            return False
        self.end = end
        self.sealed = True
        return True

    def reopen(self, end: Exit) -> None:
        """Take over what an earlier agent left: ``end`` is how it ended if nobody has said so."""
        agent = self._sources[AGENT]
        agent.grow()
        if agent.final() is None:
            self._seal_somewhere(end)
            return
        final = self._sources[ENGINE].final()
        if final is not None:
            self._sources[ENGINE].limit = final[0]
        self._sources[ENGINE].grow()
        self.sealed = True

    # ------------------------------------------------------------ sending

    def grow(self) -> int:
        """Look how much the engine has written; its size in bytes."""
        return self._sources[ENGINE].grow()

    def look(self) -> int:
        """The same, and read what is to be sent."""
        return self._sources[ENGINE].look()

    @property
    def seen_bytes(self) -> int:
        """The same as it was at the last look."""
        return self._sources[ENGINE].size

    @property
    def behind(self) -> bool:
        """Whether the server has yet to record something that has been written."""
        return any(reader.grow() > reader.acked_offset for reader in self._sources.values())

    @property
    def acked_bytes(self) -> int:
        """How much of the engine's spool is recorded."""
        return self._sources[ENGINE].acked_offset

    @property
    def started_at(self) -> Optional[float]:
        """When user code began, as the engine's spool says."""
        if self._started_at is None:
            self._started_at = self._sources[ENGINE].started_at()
        return self._started_at

    def held(self, ended: bool, rode_outage: bool) -> Dict[str, Any]:
        """This attempt as a line of `Hello`."""
        return as_dict(Held(self.job, self.lease, self.started_at, ended, rode_outage))

    def next(self) -> Optional[Outgoing]:
        """The next batch to send, which counts as sent from now on. ``wanted`` says what blocks it."""
        if self.gone:
            self.wanted = []
            return None
        if self._in_vain and self._in_vain == self._known() and not self._held_enough:
            return None  # what blocks it is not here yet, and nothing else has come
        self.wanted = []
        self._in_vain = ()
        for source, other, until in self._in_turn():
            reader = self._sources[source]
            final = self.sealed and self._sources[other].drained
            batch, missing = reader.next_batch(self.uploaded, final, until)
            self.wanted.extend(missing)
            if batch is not None and not (missing and self._holds_back(batch, missing)):
                reader.mark_sent(batch)
                self._held_at = None
                return Outgoing(source, batch.first, batch.lines)
        if self.wanted:
            self._in_vain = self._known()
        return None

    def _known(self) -> Tuple[int, ...]:
        """All that `next` goes by, but for the time."""
        engine, agent = self._sources[ENGINE], self._sources[AGENT]
        sent = engine.sent_offset, agent.sent_offset, engine.acked, agent.acked
        return (engine.size, agent.size, *sent, len(self.uploaded), len(self.lost), self.sealed)

    def _in_turn(self) -> Sequence[Turn]:
        """Whose lines go first, and the moment up to which: a few lines of the agent's, as what a child of
        the engine writes, go between those of the engine by their times. More go as they come: each turn
        is a frame."""
        agent, engine = self._sources[AGENT], self._sources[ENGINE]
        if not agent.unsent_bytes:
            return _ENGINE_ALONE
        if agent.unsent_bytes >= BY_TIME_BYTES_MAX:
            return _AS_THEY_COME
        engine.grow()
        ours, theirs = agent.next_at(), engine.next_at()
        if ours is None or theirs is None:
            return _AS_THEY_COME
        source, other, until = (ENGINE, AGENT, ours) if theirs <= ours else (AGENT, ENGINE, theirs)
        if self._sources[source].is_full:
            return ()  # an acknowledgement is on its way, and after it these lines are
        return (source, other, until), (other, source, None)

    @property
    def holds(self) -> bool:
        """Whether lines wait for a value that a later one names, so as to go in one frame with it."""
        return self._held_at is not None

    def _holds_back(self, batch: Batch, missing: List[str]) -> bool:
        """Whether these lines wait for what the next one names: a moment, and none that somebody acts on."""
        if missing[0] in self.lost or any(line.startswith(_URGENT_HEADS) for line in batch.lines):
            return False
        if self._held_at is None:
            self._held_at = time.monotonic()
        return not self._held_enough

    @property
    def _held_enough(self) -> bool:
        return self._held_at is not None and time.monotonic() - self._held_at >= HOLD_S

    def is_own_value(self, digest: str) -> bool:
        """Whether an engine of this agent has written this, and nobody but engines has its path."""
        return self.fresh and digest not in self._sources[ENGINE].files

    @property
    def stuck(self) -> bool:
        """Whether what `next` found to be sent next names a value that is lost."""
        return bool(self.wanted) and self.wanted[0] in self.lost

    @property
    def unsent(self) -> bool:
        """Whether more is known to be there than has been sent."""
        engine, agent = self._sources[ENGINE], self._sources[AGENT]
        return not self.gone and (engine.sent_offset < engine.size or agent.sent_offset < agent.size)

    @property
    def told(self) -> bool:
        """Whether all has been sent, and nothing will be added."""
        return self.sealed and self._sources[ENGINE].drained and self._sources[AGENT].drained

    def acknowledge(self, source: str, number: int) -> bool:
        """The server has recorded ``source`` up to ``number``; says whether that is news."""
        reader = self._sources.get(source)
        return reader is not None and reader.acknowledge(number)

    def rewind(self, recorded: Dict[str, int]) -> None:
        """A new session: go on after what the server has recorded, as far as it says."""
        for source, reader in self._sources.items():
            reader.grow()
            reader.rewind(recorded.get(source, reader.acked))

    @property
    def settled(self) -> bool:
        """Whether the server has all of it, the end included."""
        return self.sealed and self._sources[ENGINE].settled and self._sources[AGENT].settled

    def forget_rest(self) -> None:
        """A value the next line names is lost: of the engine's spool nothing more can be told."""
        engine = self._sources[ENGINE]
        engine.limit = engine.sent_offset
        engine.grow()
        if self.sealed:
            self.sealed = False
            self.seal(Exit(wall_now(), "crashed", LOST_VALUE))

    def close(self) -> None:
        """Let go of the files and leave them for the next agent."""
        self.gone = True
        self._writer.close()
        for reader in self._sources.values():
            reader.close()

    def delete(self, spares: Optional[Spares] = None) -> None:
        """The server has all of it, or will believe none of it. What the engine wrote to is one of ``spares``
        from now on, if there are any: it has closed it.
        """
        # The engine's goes last: while it is there, the next agent answers for the attempt.
        if self._writer.has_written or not self.fresh:
            _remove(self._agent_path)
        if spares is None or not self._sources[ENGINE].give_back(spares):
            _remove(self.engine_path)
        self.close()


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def leftovers(directory: Path, outgoing: Path) -> List[Reports]:
    """The attempts that an earlier agent left in ``directory``, with what they saved in ``outgoing``."""
    found: List[Reports] = []
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        job, _, lease = path.name[: -len(_SUFFIX)].rpartition("-")
        if job and lease.isdigit():
            found.append(Reports(directory, outgoing, job, int(lease)))
    return found
