"""Machines that provisioners were asked for, on every dialect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.errors import IllegalTransition
from farhand.model import Machine, Token
from farhand.store import Store

pytestmark = pytest.mark.anyio
MONTH_S = 31 * 24 * 3600.0


def a_machine(name: str = "hpc-gpu-1", at: float = 1000.0) -> tuple[Machine, Token]:
    jti = f"{name}-jti"
    machine = Machine(name, "hpc", "gpu", "asked", ("gpu",), jti, at + 60, at, at, at)
    return machine, Token(jti, name, "worker", ("gpu",), at, at + 60)


async def test_a_machine_is_recorded_with_the_token_of_its_worker(store: Store) -> None:
    machine, token = a_machine()
    await store.machines.add(machine, token)
    assert await store.machines.open() == [machine]
    assert await store.tokens.get(token.jti) == token


async def test_of_two_changes_to_one_state_the_second_is_refused(store: Store) -> None:
    machine, token = a_machine()
    await store.machines.add(machine, token)
    pending = replace(machine, state="pending", external="42", reason="PENDING: Priority")
    assert await store.machines.change(machine, pending)
    assert not await store.machines.change(machine, replace(machine, state="leaving"))
    assert await store.machines.open() == [pending]


async def test_a_machine_that_ended_is_in_no_other_state_again(store: Store) -> None:
    machine, token = a_machine()
    await store.machines.add(machine, token)
    ended = replace(machine, state="ended", ended_at=1001.0)
    assert await store.machines.change(machine, ended)
    with pytest.raises(IllegalTransition):
        await store.machines.change(ended, machine)
    assert await store.machines.open() == []
    assert await store.machines.ended(5) == [ended]


async def test_what_ended_long_ago_goes_with_its_token(store: Store) -> None:
    old, its_token = a_machine("old")
    await store.machines.add(old, its_token)
    await store.machines.change(old, replace(old, state="ended", ended_at=1001.0))
    young, token = a_machine("young", 1001.0 + MONTH_S)
    await store.machines.add(young, token)
    assert await store.machines.ended(5) == []
    assert await store.tokens.get(its_token.jti) is None
    assert await store.machines.open() == [young]


async def test_a_job_that_loses_machines_pays_only_for_those_beyond_the_bound_and_for_other_workers(story):
    job = await story.run()
    for number in range(6):
        machine, token = a_machine(f"m{number}")
        await story.store.machines.add(machine, token)
        await story.end(await story.running(job, machine.name), "lost", "worker_lost", "gone")
        assert (await story.job(job.id)).crashes == (number == 5)
    await story.end(await story.running(job, "own"), "lost", "worker_lost", "gone")
    assert (await story.job(job.id)).crashes == 2
