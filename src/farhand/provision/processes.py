"""Runs a command beside the event loop: in a session of its own, without a terminal, within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_OUTPUT_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended; ``code`` is None when it was killed at its time limit."""

    code: int | None
    out: str
    err: str

    @property
    def said(self) -> str:
        """All it has printed."""
        return f"{self.err}\n{self.out}"


class NoSuchCommand(Exception):
    """The program cannot be started; the message says why."""


def environment() -> Mapping[str, str]:
    """What commands see: ours, without a secret of this server, and nothing that would ask a person."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FARHAND_")}
    return {**kept, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}


async def run(command: Sequence[str], text: str, timeout_s: float) -> Outcome:
    """Run it with ``text`` on standard input. Raises `NoSuchCommand`.

    Output goes to files, not pipes: a child that stays behind, as ssh's master connection does, would keep
    a pipe open. At the time limit the whole group is killed.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(text.encode())
        given.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=given, stdout=out, stderr=err, env=environment(), start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise NoSuchCommand(f"{command[0]} cannot be started: {error}") from error
        try:
            code: int | None = await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            code = None
        finally:
            if process.returncode is None:
                _kill(process.pid)
                await asyncio.shield(process.wait())
        read = [os.pread(file.fileno(), _OUTPUT_BYTES_MAX, 0).decode(errors="replace") for file in (out, err)]
        return Outcome(code, *read)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
