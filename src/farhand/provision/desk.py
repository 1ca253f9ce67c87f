"""The machines of one provisioner: submitted, asked about, and given back, one round after another.

A machine is recorded before it is submitted, and its name looked up before it is submitted again. What the
scheduler does not answer changes nothing: unknown is still outstanding. Failures back off, in its own words.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ..engine.machines import Check, Machines
from ..engine.service import Service, Wakeup
from ..errors import FarhandError
from ..model import Machine
from .config import Profile, Settings
from .interface import Asked, Order, Provisioner, Reach, SchedulerAway, SubmitFailed
from .steps import Around, Step, after_status, around_it, backoff_s

log = logging.getLogger("farhand")

POLL_S_MAX = 60.0
_LEAVE_S = 20.0
_CHANGED = "its profile has been changed"
_TRIAL_TOKEN = "none: this is a test"


class Desk(Service):
    """One provisioner with its machines. ``reach`` tells what its workers dial, or raises `SubmitFailed`."""

    name = "provisioner"

    def __init__(
        self, settings: Settings, provisioner: Provisioner, machines: Machines, reach: Callable[[], Reach]
    ) -> None:
        super().__init__()
        self.settings = settings
        self._provisioner = provisioner
        self._machines = machines
        self._reach = reach
        self._wakeup = Wakeup()
        self._profiles = {profile.name: profile for profile in settings.profiles}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._again_at: dict[str, float] = {}
        self._unneeded: dict[str, float] = {}
        self._troubles: dict[str, str] = {}
        self._polled_at = float("-inf")
        self._polls_failed = 0

    def wake(self) -> None:
        """Something has changed: look."""
        self._wakeup.set()

    def may_ask(self, profile: str) -> bool:
        """Whether another machine of a profile may be asked for now."""
        return time.monotonic() >= self._not_before.get(profile, 0.0)

    @property
    def _open(self) -> list[Machine]:
        return self._machines.of(self.settings.name)

    # ------------------------------------------------------------ rounds

    async def _work(self) -> None:
        while True:
            await self._round()
            await self._wakeup.wait(self._pause_s())

    async def _round(self) -> None:
        await self._look_around()
        for machine in [machine for machine in self._open if machine.state == "asked"]:
            if time.monotonic() >= self._again_at.get(machine.name, 0.0):
                await self._submit(machine)
        if self._open and time.monotonic() >= self._polled_at + self._interval_s:
            await self._poll()
            await self._look_around()
        await self._give_back()

    @property
    def _interval_s(self) -> float:
        return min(
            max(POLL_S_MAX, self._provisioner.interval_s),
            self._provisioner.interval_s * 2**self._polls_failed,
        )

    def _pause_s(self) -> float | None:
        """Until the next thing that is due; None while there is nothing to look after."""
        if not self._open:
            return None
        return min(1.0, max(0.05, self._polled_at + self._interval_s - time.monotonic()))

    async def _take(self, machine: Machine, step: Step | None) -> Machine:
        if step is None:
            return machine
        after = await self._machines.change(machine, step.state, **step.fields)
        if after.state == "attached":
            self._failures.pop(machine.profile, None)
            self.say("ended", "")
        if after.state == "leaving" and after.state != machine.state:
            self._polled_at = float("-inf")
        if after.state == "ended":
            self._note_end(after)
        return after

    def _note_end(self, machine: Machine) -> None:
        """One that never attached is a failure, but where nobody wanted it any more."""
        for known in (self._again_at, self._unneeded, self._troubles):
            known.pop(machine.name, None)
        if machine.attached_at is None and not machine.reason.startswith(("nothing waits", _CHANGED)):
            failures = self._failures[machine.profile] = self._failures.get(machine.profile, 0) + 1
            wait_s = backoff_s(failures, self._provisioner.interval_s)
            self._not_before[machine.profile] = time.monotonic() + wait_s
            self.say("ended", f"{machine.profile}: {machine.reason}")
        else:
            self.say("ended", "")

    async def _look_around(self) -> None:
        """What workers do, and what the time is."""
        now = time.time()
        for machine in self._open:
            needed = self._machines.needed(machine)
            since = now if needed else self._unneeded.get(machine.name, now)
            self._unneeded[machine.name] = since
            online, lost = self._machines.is_online(machine), self._machines.is_lost(machine)
            around = Around(online, lost, now - since)
            await self._take(machine, around_it(machine, around, self.settings, now))

    # ------------------------------------------------------------ submit

    async def _submit(self, machine: Machine) -> None:
        profile = self._profiles.get(machine.profile)
        if profile is None:
            await self._take(machine, Step("leaving", {"reason": "its profile is not configured any more"}))
            return
        try:
            if machine.tries:
                machine = await self._look_up(machine)
            if machine.state == "asked":
                tries, digest = machine.tries + 1, profile.digest
                machine = await self._machines.change(machine, tries=tries, profile_digest=digest)
                await self._hand_in(machine, profile)
        except (SubmitFailed, SchedulerAway, FarhandError) as error:
            self._again_at[machine.name] = time.monotonic() + backoff_s(
                max(1, machine.tries), self._provisioner.interval_s
            )
            words = f"submitting {machine.profile} failed: {error}"
            self.say(machine.name, words)
            await self._machines.change(machine, reason=words)

    async def _look_up(self, machine: Machine) -> Machine:
        """An earlier submission may have been accepted, whatever was said of it."""
        seen = await self._provisioner.status([_asked(machine)])
        return await self._take(machine, after_status(machine, seen.get(machine.name), time.time()))

    async def _hand_in(self, machine: Machine, profile: Profile) -> None:
        reach, token = self._reach(), await self._machines.token_of(machine)
        order = Order(machine.name, profile, reach.url, token, reach.pin, reach.url_file)
        external = await self._provisioner.submit(order)
        self.say(machine.name, "")
        await self._machines.change(machine, "pending", external=external, reason="")
        self._polled_at = float("-inf")

    # ------------------------------------------------------------ status

    async def _poll(self) -> None:
        asked = self._open
        self._polled_at = time.monotonic()
        try:
            found = await self._provisioner.status([_asked(machine) for machine in asked])
        except SchedulerAway as error:
            self._polls_failed += 1
            self.say("status", str(error))
            return
        self._polls_failed = 0
        self.say("status", "")
        now = time.time()
        for machine in asked:
            current = next((m for m in self._open if m.name == machine.name), None)
            if current is not None:
                await self._take(current, after_status(current, found.get(machine.name), now))

    def say(self, about: str, words: str) -> None:
        """What last went wrong about something, or nothing any more."""
        if words:
            self._troubles[about] = words
        else:
            self._troubles.pop(about, None)
        self._machines.say(self.settings.name, "; ".join(dict.fromkeys(self._troubles.values())))

    # ------------------------------------------------------------ give back

    async def _give_back(self) -> None:
        """Tell the scheduler, again and again until it says that they are gone; a poll finds that out."""
        leaving = [machine for machine in self._open if machine.state == "leaving"]
        due = [m for m in leaving if time.monotonic() >= self._again_at.get(m.name, 0.0)]
        if due:
            told = await self._provisioner.cancel([_asked(machine) for machine in due])
            again_at = time.monotonic() + self._provisioner.interval_s
            self._again_at |= {machine.name: again_at for machine in due}
            missed = len(due) - len(told)
            self.say("cancel", f"{missed} could not be cancelled; it is tried again" if missed else "")
            self._polled_at = float("-inf")

    async def leave(self, why: str) -> None:
        """Give everything back, as far as that goes within seconds; the next start sees to the rest."""
        await self.stop()
        for machine in self._open:
            await self._take(machine, Step("leaving", {"reason": why}))
        leaving: Sequence[Machine] = [machine for machine in self._open if machine.state == "leaving"]
        try:
            if leaving:
                asked = [_asked(machine) for machine in leaving]
                await asyncio.wait_for(self._provisioner.cancel(asked), _LEAVE_S)
        except TimeoutError:
            log.warning("%s: not all was cancelled in time; the next start does", self.settings.name)

    async def give_up_changed(self) -> None:
        """Give back what waits in a queue with the options of a profile that is another by now.

        It may have been changed while no server ran: a machine keeps what it was submitted with.
        """
        now = {name: profile.digest for name, profile in self._profiles.items()}
        for machine in self._open:
            waits = machine.state in ("pending", "running") and machine.attached_at is None
            asked = machine.profile_digest
            if waits and asked and now.get(machine.profile, asked) != asked:
                await self._take(machine, Step("leaving", {"reason": _CHANGED}))

    async def close(self) -> None:
        """Look after them no longer; they stay as they are."""
        await self.stop()
        await self._provisioner.close()

    async def test(self, name: str, submit: bool) -> list[Check]:
        """Try every profile in turn, up to the first that fails."""
        try:
            reach = self._reach()
        except SubmitFailed as error:
            return [Check("workers reach this server", False, str(error))]
        checks = [Check("workers reach this server", True, reach.url)] if reach.url_file else []
        for profile in self.settings.profiles:
            order = Order(name, profile, reach.url, _TRIAL_TOKEN, reach.pin, reach.url_file)
            checks += [check for check in await self._provisioner.test(order, submit) if check not in checks]
            if not checks[-1].ok:
                break
        return checks


def _asked(machine: Machine) -> Asked:
    return Asked(machine.name, machine.external)
