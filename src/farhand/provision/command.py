"""Any script as a provisioner: a cloud's command line, PBS, docker. JSON on standard input and output.

- ``submit`` is given ``{"name", "profile", "url", "token", "pin", "arguments", "script"}`` and answers
  ``{"id": "…"}``; the machine is to run ``script`` (or a worker with ``arguments``, and the token in
  ``FARHAND_WORKER_TOKEN``).
- ``status`` is given ``{"machines": [{"name", "id"}, …]}`` and answers
  ``{"machines": {NAME: {"state": "pending" | "running" | "ended", "reason": "…", "id": "…"}}}``; a machine
  that it leaves out does not exist.
- ``cancel`` is given the same and answers ``{"cancelled": [NAME, …]}``.

A failure is another exit code than 0, with its reason on standard error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..engine.machines import Check
from .config import Settings
from .interface import ENDED, PENDING, RUNNING, Asked, Order, SchedulerAway, Seen, SubmitFailed
from .processes import NoSuchCommand, run
from .slurm.parsing import complaint
from .slurm.script import arguments, plain


class _Failed(Exception):
    """The command failed; the message has its words."""


class _Submitted(msgspec.Struct):
    id: str


class _Machine(msgspec.Struct):
    state: str
    reason: str = ""
    id: str = ""


class _Status(msgspec.Struct):
    machines: dict[str, _Machine]


class _Cancelled(msgspec.Struct):
    cancelled: list[str]


class Command:
    """Three commands."""

    def __init__(self, settings: Settings, _home: Path) -> None:
        self._settings = settings
        self.interval_s = settings.poll_s

    async def submit(self, order: Order) -> str:
        """Hand the order to the command."""
        try:
            return (await self._ask(self._settings.submit, self._told(order), _Submitted)).id
        except _Failed as error:
            raise SubmitFailed(str(error)) from error

    def _told(self, order: Order) -> dict[str, Any]:
        return {
            "name": order.name,
            "profile": dataclasses.asdict(order.profile),
            "url": order.url,
            "token": order.token,
            "pin": order.pin,
            "arguments": arguments(order, self._settings),
            "script": plain(order, self._settings),
        }

    async def status(self, asked: Sequence[Asked]) -> Mapping[str, Seen]:
        """Ask the command about all of them at once."""
        try:
            found = await self._ask(self._settings.status, _machines(asked), _Status)
        except _Failed as error:
            raise SchedulerAway(str(error)) from error
        states = (PENDING, RUNNING, ENDED)
        wrong = {
            name: machine.state for name, machine in found.machines.items() if machine.state not in states
        }
        if wrong:
            raise SchedulerAway(f"status answered states that are none of {', '.join(states)}: {wrong}")
        return {name: Seen(m.state, m.reason, m.id) for name, m in found.machines.items()}

    async def cancel(self, asked: Sequence[Asked]) -> set[str]:
        """Ask the command to end them."""
        try:
            answer = await self._ask(self._settings.cancel, _machines(asked), _Cancelled)
        except _Failed:
            return set()
        return set(answer.cancelled) & {machine.name for machine in asked}

    async def test(self, order: Order, submit: bool) -> list[Check]:
        """Ask for the status of nothing; with ``submit``, have a machine and give it back at once."""
        checks: list[Check] = []
        try:
            await self._ask(self._settings.status, _machines([]), _Status)
            checks.append(Check("status answers", True, ""))
            if submit:
                asked = Asked(
                    order.name, (await self._ask(self._settings.submit, self._told(order), _Submitted)).id
                )
                checks.append(Check(f"submit takes {order.profile.name}", True, asked.id))
                back = asked.name in await self.cancel([asked])
                checks.append(Check("cancel takes it back", back, "" if back else "it did not name it"))
        except _Failed as error:
            checks.append(Check("submit answers" if checks else "status answers", False, str(error)))
        return checks

    async def close(self) -> None:
        """Nothing is kept open."""

    async def _ask(self, command: Sequence[str], told: dict[str, Any], answer: type[Any]) -> Any:
        timeout_s = self._settings.command_timeout_s
        try:
            outcome = await run(command, json.dumps(told), timeout_s)
        except NoSuchCommand as error:
            raise _Failed(str(error)) from error
        if outcome.code is None:
            raise _Failed(f"{command[0]} did not end within {timeout_s:g} s")
        if outcome.code != 0:
            raise _Failed(complaint(outcome.err) or f"{command[0]} ended with exit code {outcome.code}")
        try:
            return msgspec.json.decode(outcome.out, type=answer)
        except msgspec.MsgspecError as error:
            raise _Failed(f"{command[0]} answered what is not expected: {error}") from error


def _machines(asked: Sequence[Asked]) -> dict[str, Any]:
    return {"machines": [{"name": machine.name, "id": machine.id} for machine in asked]}
