"""A store that lets nobody write for a while, as long as a minute by the default clockwork."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from farhand_worker.protocol import Times
from tests.harness.deployment import Deployment, deployed
from tests.harness.waiting import throughout
from tests.harness.witnesses import words
from tests.optional import need

LONG = Times().scaled(4)
"""Leases that outlast the refusals: how long PostgreSQL is waited for is not a part of the clockwork."""


@contextmanager
def locked(deployment: Deployment) -> Iterator[None]:
    """While this is open, every transaction of the server waits, and is refused after five seconds."""
    import psycopg

    with psycopg.connect(deployment.server.environment["FARHAND_DATABASE"]) as holder:
        holder.execute("LOCK TABLE owner IN ACCESS EXCLUSIVE MODE")
        yield
        holder.rollback()


def test_runs_that_end_while_the_store_refuses_are_recorded_when_it_takes_again(tmp_path: Path) -> None:
    """B020, B127: nothing is finished and still running afterwards, and nobody loses a lease by it."""
    need("PostgreSQL")
    with deployed(tmp_path, dialect="postgresql", times=LONG) as deployment:
        deployment.worker("box")
        gate, seen = tmp_path / "gate", tmp_path / "seen"
        there = deployment.start_run("waiting_there", path=str(seen), gate=str(gate))
        here = deployment.start_run("waiting", gate=str(gate))
        for run in (there, here):
            deployment.wait_for_run(run, "running")
        with locked(deployment):
            gate.touch()
            refused = deployment.client.post(
                "/flows/waiting/runs", json={"params": {"gate": "x"}}, timeout=30
            )
            assert (refused.status_code, refused.json()["code"]) == (503, "store_failed")
            throughout(lambda: deployment.run(there)["state"] == "running", 2.0, "nothing can be recorded")
        for run in (there, here):
            ended = deployment.wait_for_run(run, "completed")
            assert (ended["attempt"], len(deployment.attempts(run))) == (1, 1)
        assert set(words(seen).values()) == {1}
