"""What is done to a deployment while it works: each fault is one function of `Target`, chosen by a seed."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.harness.deployment import Deployment, WorkerProgram
from tests.harness.processes import process_of, send
from tests.harness.proxy import Proxy


@dataclass
class Target:
    """A server and workers, each behind a link of its own, and the dice."""

    deployment: Deployment
    workers: list[WorkerProgram]
    links: list[Proxy]
    dice: random.Random
    done: dict[str, int] = field(default_factory=dict[str, int])

    def strike(self) -> None:
        """Do one thing at random, and mend it."""
        name = self.dice.choice(sorted(FAULTS))
        self.done[name] = self.done.get(name, 0) + 1
        FAULTS[name](self)

    def pause(self, leases: float) -> None:
        """Let up to so many leases pass."""
        threading.Event().wait(self.dice.uniform(0, leases) * self.deployment.times.lease_s)


def kill_server(target: Target) -> None:
    """SIGKILL; it is started again a little later."""
    target.deployment.server.kill()
    target.pause(1)
    target.deployment.restart()


def stop_server(target: Target) -> None:
    """SIGSTOP for longer than a lease, or shorter."""
    _freeze(target, target.deployment.server.pid)


def kill_agent(target: Target) -> None:
    """SIGKILL of a worker's agent; the worker is started again."""
    worker = target.dice.choice(target.workers)
    worker.kill()
    target.pause(1)
    worker.start()


def stop_agent(target: Target) -> None:
    """SIGSTOP of a worker's agent."""
    _freeze(target, target.dice.choice(target.workers).pid)


def kill_warden(target: Target) -> None:
    """SIGKILL of what starts and ends a worker's engines."""
    with contextlib.suppress(AssertionError, IndexError, ProcessLookupError):
        send(target.dice.choice(target.workers).warden, signal.SIGKILL)


def kill_engine(target: Target) -> None:
    """SIGKILL of the process that runs user code."""
    with contextlib.suppress(AssertionError, IndexError, ProcessLookupError):
        send(target.dice.choice(target.dice.choice(target.workers).engines()), signal.SIGKILL)


def cut_link(target: Target) -> None:
    """Nothing passes for a while, in either direction."""
    link = target.dice.choice(target.links)
    link.cut()
    target.pause(3)
    link.heal()


def reset_link(target: Target) -> None:
    """Every connection of a worker breaks at once."""
    target.dice.choice(target.links).reset()


FAULTS: dict[str, Callable[[Target], None]] = {
    each.__name__: each
    for each in (
        kill_server,
        stop_server,
        kill_agent,
        stop_agent,
        kill_warden,
        kill_engine,
        cut_link,
        reset_link,
    )
}


def _freeze(target: Target, pid: int) -> None:
    process = process_of(pid)
    if process is None:
        return
    process.suspend()
    try:
        target.pause(2)
    finally:
        process.resume()
