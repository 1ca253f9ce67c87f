"""Slurm as a provisioner: one sbatch a machine, one squeue for all, scancel in pieces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...engine.machines import Check
from ..config import Settings
from ..interface import ENDED, Asked, Order, SchedulerAway, Seen, SubmitFailed
from . import parsing
from .client import Client, Failed
from .script import SAYS, build, trial

CANCELLED_AT_ONCE = 50
"""So many jobs are named to one scancel."""

_PREEMPTED_S = 5.0
"""What Slurm is to put back into its queue is there before that."""

_TRIAL_S = 90.0
_TRIAL_LOOK_S = 1.0


class Slurm:
    """One cluster, or several under one squeue."""

    def __init__(self, settings: Settings, home: Path) -> None:
        self._settings = settings
        self.interval_s = settings.poll_s
        self._client = Client(settings, home)
        self._parsable = True
        self._preempted: dict[str, float] = {}
        self._clusters = {cluster for p in settings.profiles for cluster in clusters_of(p.sbatch)}

    async def submit(self, order: Order) -> str:
        """Submit the script on standard input. A wrapper of sbatch may not know ``--parsable``."""
        try:
            return await self._sbatch(build(order, self._settings))
        except Failed as error:
            raise SubmitFailed(str(error)) from error

    async def _sbatch(self, script: str) -> str:
        outcome = await self._client.call(["sbatch", *["--parsable"] * self._parsable], script)
        if outcome.code != 0 and self._parsable and parsing.without_parsable(outcome.said):
            self._parsable = False
            return await self._sbatch(script)
        found = parsing.submitted(outcome.out)
        if outcome.code == 0 and found:
            return found
        raise Failed(parsing.complaint(outcome.said) or f"sbatch ended with exit code {outcome.code}")

    async def status(self, asked: Sequence[Asked]) -> Mapping[str, Seen]:
        """By one squeue a cluster, for all of them; what that does not list any more is looked up."""
        try:
            lines = await self._list(asked)
            alike = parsing.by_name(lines, [machine.name for machine in asked])
            found = {name: self._settle(name, of_name[0].seen()) for name, of_name in alike.items()}
            for machine in asked:
                if machine.name not in found and machine.id:
                    gone = await self._look_up(machine.id)
                    if gone is not None:
                        found[machine.name] = gone
            strays = [
                line for of_name in alike.values() for line in of_name[1:] if line.seen().state != ENDED
            ]
            await self._scancel([line.id for line in strays])
            return {name: await self._with_words(seen) for name, seen in found.items()}
        except Failed as error:
            raise SchedulerAway(str(error)) from error

    async def _list(self, asked: Sequence[Asked]) -> list[parsing.Line]:
        clusters = {"", *self._clusters, *(machine.id.partition(";")[2] for machine in asked)}
        names = ",".join(machine.name for machine in asked)
        lines: list[parsing.Line] = []
        for cluster in sorted(
            clusters, reverse=True
        ):  # by name first: of one job told twice the first counts
            where = [f"--clusters={cluster}"] if cluster else []
            words = ["squeue", "--noheader", "--states=all", f"--format={parsing.FORMAT}", *where]
            outcome = await self._client.call([*words, f"--name={names}"])
            if outcome.code != 0:
                raise Failed(parsing.complaint(outcome.said) or "squeue failed and said nothing")
            lines += parsing.queue(outcome.out, cluster)
        return lines

    def _settle(self, name: str, seen: Seen) -> Seen:
        """What was preempted, and is not back in the queue seconds later, has ended."""
        if not seen.reason.startswith("PREEMPTED"):
            self._preempted.pop(name, None)
            return seen
        since = self._preempted.setdefault(name, time.monotonic())
        return Seen(ENDED, seen.reason, seen.id) if time.monotonic() - since > _PREEMPTED_S else seen

    async def _look_up(self, id: str) -> Seen | None:
        """A job that squeue does not list any more. Slurm keeps it for minutes, its accounting for ever."""
        number, _, cluster = id.partition(";")
        where = [f"--clusters={cluster}"] if cluster else []
        outcome = await self._client.call(["scontrol", *where, "--oneliner", "show", "job", number])
        seen, _ = parsing.shown(outcome.out)
        if seen is not None:
            return seen
        if not parsing.is_unknown(outcome.said):
            raise Failed(parsing.complaint(outcome.said) or "scontrol failed and said nothing")
        words = ["sacct", *where, "-X", "-n", "-P", "-j", number, "--format=JobID,State,ExitCode"]
        try:
            outcome = await self._client.call(words)
        except Failed:
            return None  # the controller has spoken; how the job ended is all that is not known
        return parsing.accounted(outcome.out) if outcome.code == 0 else None

    async def _with_words(self, seen: Seen) -> Seen:
        """How a job ended; where it failed by itself, with the last line of its output."""
        if seen.state != ENDED or not seen.id or not seen.reason.startswith("FAILED"):
            return seen
        number, _, cluster = seen.id.partition(";")
        where = [f"--clusters={cluster}"] if cluster else []
        try:
            shown = await self._client.call(["scontrol", *where, "--oneliner", "show", "job", number])
            _, path = parsing.shown(shown.out)
            output = await self._client.call(["tail", "-c", "4096", "--", path]) if path else None
        except Failed:
            return seen
        said = "" if output is None or output.code != 0 else parsing.last_words(output.out, SAYS)
        return Seen(seen.state, f"{seen.reason}; {said}" if said else seen.reason, seen.id)

    async def cancel(self, asked: Sequence[Asked]) -> set[str]:
        """In pieces, so that no call names so many that it takes too long; the rest is told again later."""
        told: set[str] = set()
        ids = [(machine.name, machine.id) for machine in asked if machine.id]
        unknown = [machine for machine in asked if not machine.id]
        found = await self._ids_of(unknown)
        if found is not None:
            ids += found
            told |= {machine.name for machine in unknown}
        for start in range(0, len(ids), CANCELLED_AT_ONCE):
            piece = ids[start : start + CANCELLED_AT_ONCE]
            names = {name for name, _ in piece}
            told = told | names if await self._scancel([id for _, id in piece]) else told - names
        return told

    async def _ids_of(self, asked: Sequence[Asked]) -> list[tuple[str, str]] | None:
        """Name and id of what is in the queue under these names, by one squeue: scancel takes one name a
        call. None where Slurm does not say."""
        if not asked:
            return []
        try:
            lines = await self._list(asked)
        except Failed:
            return None
        names = {machine.name for machine in asked}
        return [(line.name, line.id) for line in lines if line.name in names and line.seen().state != ENDED]

    async def _scancel(self, ids: Sequence[str]) -> bool:
        """Whether Slurm was told of all."""
        by_cluster: dict[str, list[str]] = {}
        for id in ids:
            number, _, cluster = id.partition(";")
            by_cluster.setdefault(cluster, []).append(number)
        done = True
        for cluster, numbers in by_cluster.items():
            where = [f"--clusters={cluster}"] if cluster else []
            done = await self._told(["scancel", *where, *numbers]) and done
        return done

    async def _told(self, words: Sequence[str]) -> bool:
        try:
            outcome = await self._client.call(words)
        except Failed:
            return False
        return outcome.code == 0 or parsing.is_unknown(outcome.said)

    # ------------------------------------------------------------ the test of it

    async def test(self, order: Order, submit: bool) -> list[Check]:
        """The way there, the script's syntax, what sbatch would do with it; and a job of a minute at most."""
        script = build(order, self._settings)
        steps = [
            (f"run a command on {self._client.place}", ["true"], ""),
            (f"the job script of {order.profile.name} is one", ["bash", "-n"], script),
            (f"sbatch takes {order.profile.name}", ["sbatch", "--test-only"], script),
        ]
        checks: list[Check] = []
        for what, words, text in steps:
            checks.append(await self._check(what, words, text))
            if not checks[-1].ok:
                return checks
        return [*checks, await self._trial(order)] if submit else checks

    async def _check(self, what: str, words: Sequence[str], text: str) -> Check:
        try:
            outcome = await self._client.call(words, text)
        except Failed as error:
            return Check(what, False, str(error))
        return Check(what, outcome.code == 0, parsing.complaint(outcome.said))

    async def _trial(self, order: Order) -> Check:
        what = f"a job of {order.profile.name} runs prerun and ends"
        asked = Asked(order.name)
        try:
            asked = Asked(order.name, await self._sbatch(trial(order)))
            deadline, seen = time.monotonic() + _TRIAL_S, Seen("", "was not seen")
            while (
                not (seen.state == ENDED or parsing.never_starts(seen.reason)) and time.monotonic() < deadline
            ):
                await asyncio.sleep(_TRIAL_LOOK_S)
                seen = (await self.status([asked])).get(order.name, Seen(ENDED, "is gone"))
        except (Failed, SchedulerAway) as error:
            await self.cancel([asked])
            return Check(what, False, str(error))
        if seen.state != ENDED:
            await self.cancel([asked])
            after = "" if parsing.never_starts(seen.reason) else f" after {_TRIAL_S:g} s"
            return Check(what, False, f"job {asked.id} is {seen.reason}{after}; cancelled")
        return Check(what, seen.reason.startswith("COMPLETED"), f"job {asked.id}: {seen.reason}")

    async def close(self) -> None:
        """End the connection to the login node."""
        await self._client.close()


def clusters_of(sbatch: Sequence[str]) -> set[str]:
    """The clusters that options of sbatch name."""
    found: set[str] = set()
    for line in sbatch:
        option, _, value = line.replace(" ", "=", 1).partition("=")
        if option in ("-M", "--clusters"):
            found |= {name.strip() for name in value.split(",") if name.strip()}
    return found
