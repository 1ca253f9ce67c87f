"""``python -m tests.chaos``: runs go on while everything around them is killed, frozen and cut off.

A server and two workers, on a tenth of the default times. Runs are asked for all the while, each under a key
of its own; when the time is over everything is mended, and each must have ended well, once. The faults come
from a seed, which is printed, so that a round can be had again. The slowest recovery is the longest that any
run stood still.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.harness import witnesses
from tests.harness.deployment import TERMINAL, Deployment, deployed
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually

from .faults import Target

SETTLED_S = 120.0
STEPS = 5


@dataclass
class Tally:
    """What came of a round."""

    lost: list[str] = field(default_factory=list[str])
    twice: list[str] = field(default_factory=list[str])
    again: int = 0
    slowest_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"lost {len(self.lost)}, recorded twice {len(self.twice)}, executed again {self.again}, "
            f"slowest recovery {self.slowest_s:.1f} s"
        )


class Round:
    """One round: so many runs, so many seconds of faults."""

    def __init__(self, deployment: Deployment, seed: int, runs: int, seconds: float) -> None:
        self._deployment = deployment
        self._dice = random.Random(seed)
        self._runs, self._seconds = runs, seconds
        self._witness = deployment.directory / "witness"
        self._ids: dict[str, str] = {}

    def play(self) -> Tally:
        """Strike while runs are asked for; then mend, wait and count."""
        links = [Proxy(self._deployment.port) for _ in range(2)]
        names = ("mill", "kiln")
        workers = [self._deployment.worker(n, "demo", url=p.url) for n, p in zip(names, links, strict=True)]
        target = Target(self._deployment, workers, links, self._dice)
        asking = threading.Thread(target=self._ask)
        asking.start()
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            target.strike()
            target.pause(0.5)
        asking.join()
        print("struck: " + ", ".join(f"{name} {n}" for name, n in sorted(target.done.items())))
        try:
            eventually(self._all_ended, SETTLED_S, "every run has ended")
        except AssertionError as error:
            print(error)
        tally = self._count()
        for link in links:
            link.close()
        return tally

    def _ask(self) -> None:
        """Ask for the runs, evenly; what is not answered is asked again under the same key."""
        token = (self._deployment.home / "admin-token").read_text().strip()
        url = f"{self._deployment.url}/api/v1/flows/chaotic/runs"
        began = time.monotonic()
        with httpx2.Client(headers={"Authorization": f"Bearer {token}"}, timeout=5) as client:
            for number in range(self._runs):
                key = f"r{number}"
                body = {"params": {"path": str(self._witness), "run": key}, "idempotency_key": key}
                while key not in self._ids:
                    try:
                        answer = client.post(url, json=body)
                        if answer.status_code < 300:
                            self._ids[key] = answer.json()["id"]
                    except httpx2.TransportError:
                        time.sleep(0.05)
                time.sleep(max(0.0, began + number * self._seconds * 0.9 / self._runs - time.monotonic()))

    def _all_ended(self) -> bool:
        return all(self._deployment.run(run)["state"] in TERMINAL for run in self._ids.values())

    # ------------------------------------------------------------ counting

    def _count(self) -> Tally:
        tally = Tally()
        seen: defaultdict[str, list[tuple[int, str, float]]] = defaultdict(list)
        for line in witnesses.read(self._witness):
            key, number, mark = line.word.split("/")
            seen[key].append((int(number), mark, line.at))
        for key, run_id in self._ids.items():
            self._judge(tally, key, self._deployment.run(run_id), seen[key])
        known = len(self._deployment.items("/runs", limit=1000))
        if known != self._runs:
            tally.twice.append(f"{known} runs were recorded for {self._runs} keys")
        return tally

    def _judge(self, tally: Tally, key: str, run: dict[str, Any], seen: list[tuple[int, str, float]]) -> None:
        if run["state"] != "completed":
            tally.lost.append(f"{key} {run['id']}: {run['state']} {run['reason']} {run['message']}")
            return
        marks = {(number, mark) for number, mark, _ in seen}
        if {(n, mark) for n, mark in enumerate(run["result"], 1)} - marks:
            tally.lost.append(f"{key} {run['id']}: a result that no execution gave")
        recorded = [self._value(task) for task in self._deployment.items(f"/runs/{run['id']}/tasks")]
        if Counter(recorded) != Counter(run["result"]):
            tally.twice.append(f"{key} {run['id']}: recorded {recorded}, returned {run['result']}")
        ended_well = [a for a in self._deployment.attempts(run["id"]) if a["outcome"] == "completed"]
        if len(ended_well) != 1:
            tally.twice.append(f"{key} {run['id']}: {len(ended_well)} attempts ended well")
        tally.again += len(marks) - STEPS
        moments = [at for _, _, at in seen]
        gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
        tally.slowest_s = max([tally.slowest_s, *gaps])

    @staticmethod
    def _value(task: dict[str, Any]) -> Any:
        value = task["value"]
        return json.loads(value["text"]) if isinstance(value, dict) and "text" in value else value


def main() -> int:
    """Play a round for each seed; 1 when anything was lost or recorded twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="one round each (default: one of its own)")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    failed = False
    for seed in given.seeds or [random.SystemRandom().randrange(1_000_000)]:
        print(f"seed {seed}: {given.runs} runs, {given.seconds:g} s", flush=True)
        with tempfile.TemporaryDirectory(prefix="farhand-chaos-") as name, deployed(Path(name)) as deployment:
            tally = Round(deployment, seed, given.runs, given.seconds).play()
        print(*tally.lost, *tally.twice, tally, sep="\n", flush=True)
        failed = failed or bool(tally.lost or tally.twice)
    return 1 if failed else 0


sys.exit(main())
