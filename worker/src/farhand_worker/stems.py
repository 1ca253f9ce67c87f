"""The stem of an agent's engines: started ahead, replaced when out of date, done without when there is none.

A stem (``farhand/sdk/stem.py`` of the runtime) is a blank process that the warden has engines forked from. Of
each agent there is at most one that takes orders: of the runtime that the server has now, and of the
interpreter as it is on disk now. It is begun before there is a runtime, and loads what it can (`seed`). An
agent that has none starts engines without; so it is where there are no subreapers (macOS), with an older
server's runtime, and with an interpreter in which stems keep ending.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from .planting import Interpreter, Planted, command_of, first_line, has_stem, interpreter_of, second_line

if TYPE_CHECKING:
    from .engine import Ended, Engine, Occupant

FORK_S = 10.0
"""A stem that has not forked an engine by then is killed, and the engine is started without it."""

STEM_S = 3600.0
"""A stem takes no orders after that: what has been installed below Python since is not in it."""

_FAILURES_MAX = 3
"""So many stems in a row may end without having forked anything; then there is no other."""

_log = logging.getLogger("farhand.worker")


class Stem:
    """One stem, as the occupant of its process."""

    def __init__(self, python: Interpreter, failed: Callable[[Stem, Ended], None]) -> None:
        self.python = python
        self.runtime: Optional[Path] = None
        self.began_at = asyncio.get_running_loop().time()
        self.forked = False
        self.retired = False
        self.engine: Optional[Engine] = None
        self._failed = failed

    @property
    def serves(self) -> bool:
        """Whether it takes orders."""
        return self.engine is not None and self.engine.end is None and not self.retired

    def frame(self, header: Dict[str, Any]) -> None:
        """Nothing: it has no channel."""

    def lines(self, lines: List[str]) -> None:
        """It prints nothing unless it breaks."""
        for line in lines:
            _log.warning("stem: %s", line)

    def engine_ended(self, end: Ended) -> None:
        """Its process is gone; engines that it forked go on."""
        if not self.retired:
            self._failed(self, end)


class Stems:
    """The stem that takes orders now. ``begin`` starts one, ``say`` has it read a line, ``kill`` ends it."""

    def __init__(
        self,
        python: str,
        begin: Callable[[List[str], Occupant], Engine],
        say: Callable[[Engine, str], None],
        kill: Callable[[Engine], None],
    ) -> None:
        self._python = python
        self._begin = begin
        self._say = say
        self._kill = kill
        self._stem: Optional[Stem] = None
        self._failures = 0
        self._runtime: Optional[Path] = None

    def plant(self) -> None:
        """Begin a stem, if there is none: the runtime is told to it as soon as there is one."""
        if self._runtime is None:
            self._plant()
        else:
            self.of(self._runtime)

    def adopt(self, planted: Planted, take: Callable[[Occupant], Engine]) -> None:
        """Have the stem that was begun before there was a pool to begin one. It knows what to load."""
        self._stem = stem = Stem(planted.python, self._failed)
        stem.runtime = planted.runtime
        stem.engine = take(stem)

    def _plant(self) -> None:
        python = interpreter_of(self._python)
        if self._stem is None and python is not None and self._failures < _FAILURES_MAX:
            self._stem = stem = Stem(python, self._failed)
            stem.engine = self._begin(command_of(self._python), stem)
            if stem.serves:
                self._say(stem.engine, first_line())

    def of(self, runtime: Path) -> str:
        """The engine id of the stem to fork from, which may still be starting; empty where there is none."""
        wanted = has_stem(runtime)
        if self._stem is not None and not (wanted and self._is_good(self._stem, runtime)):
            self._retire(self._stem)
        self._runtime = runtime
        if wanted:
            self._plant()
        stem = self._stem
        if stem is None or stem.engine is None or not stem.serves:
            return ""
        if stem.runtime is None:
            stem.runtime = runtime
            self._say(stem.engine, second_line(runtime))
        return stem.engine.id

    def asked(self, engine: Engine) -> None:
        """An engine was asked of the stem: if it does not come, there is something wrong with the stem."""
        stem = self._stem
        if stem is not None:
            asyncio.get_running_loop().call_later(FORK_S, self._check, stem, engine)

    def has_forked(self) -> None:
        """An engine came from it."""
        self._failures = 0
        if self._stem is not None:
            self._stem.forked = True

    # ------------------------------------------------------------ inside

    def _is_good(self, stem: Stem, runtime: Path) -> bool:
        age_s = asyncio.get_running_loop().time() - stem.began_at
        is_of_these = stem.runtime in (None, runtime) and stem.python == interpreter_of(self._python)
        return stem.serves and is_of_these and age_s < STEM_S

    def _retire(self, stem: Stem) -> None:
        stem.retired = True
        self._stem = None
        if stem.engine is not None:
            self._kill(stem.engine)

    def _check(self, stem: Stem, engine: Engine) -> None:
        if not engine.begun.is_set() and stem.serves and stem.engine is not None:
            _log.warning("the stem did not fork an engine within %.0f s; it is killed", FORK_S)
            self._kill(stem.engine)

    def _failed(self, stem: Stem, end: Ended) -> None:
        if self._stem is stem:
            self._stem = None
        if end.killed == "warden":  # as everything did
            return
        if not stem.forked:
            self._failures += 1
        others = "" if self._failures < _FAILURES_MAX else "; from now on engines are started without"
        _log.warning("the stem of the engines ended: %s%s", end.text, others)
        if stem.forked:  # whatever happened to it: the next engine shall not wait
            asyncio.get_running_loop().call_soon(self._plant_again)

    def _plant_again(self) -> None:
        try:
            self.plant()
        except OSError as error:  # too many open files, say: engines are started without
            _log.warning("another stem could not be begun: %s", error)
