"""What a script loads, and that numbers written twice stay equal."""

from __future__ import annotations

import subprocess
import sys

from farhand.sdk import limits
from farhand.sdk.ids import Random, new_id
from farhand_worker import protocol

PROGRAM = """
import sys
from farhand import flow, task
@task
def one(): return 1
@flow
def main(): return one.submit().result() + one()
main()
print(*sorted(sys.modules))
"""

HEAVY = {
    "asyncio",
    "sqlite3",
    "msgspec",
    "fastapi",
    "pydantic",
    "logging",
    "ctypes",
    "farhand_worker.protocol",
}


def test_the_script_path_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_the_limits_are_those_of_the_protocol() -> None:
    assert limits.INLINE_BYTES_MAX == protocol.INLINE_BYTES_MAX
    assert limits.SPOOL_BYTES_MAX == protocol.SPOOL_BYTES_MAX
    assert limits.IMPORT == protocol.IMPORT


def test_an_engine_loads_no_messages_of_the_protocol() -> None:
    program = "import sys, farhand.sdk.jobs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "farhand.sdk.jobs" in done.stdout.split()
    assert "farhand_worker.protocol" not in done.stdout.split()


def test_ids_sort_by_time_and_have_26_characters() -> None:
    ids = [new_id(now) for now in (0.0, 1.0, 1.5, 1_700_000_000.0, 4_000_000_000.0)]
    assert ids == sorted(ids)
    assert {len(identity) for identity in ids} == {26}
    assert all(identity.isalnum() and identity == identity.lower() for identity in ids)
    assert new_id(1.0, lambda n: b"\0" * n) == new_id(1.0, lambda n: b"\0" * n)
    assert len({new_id() for _ in range(1000)}) == 1000


def test_random_bytes_that_are_asked_for_many_at_a_time_are_given_out_once() -> None:
    random = Random()
    given = [random(10) for _ in range(1000)]
    assert {len(each) for each in given} == {10}
    assert len(set(given)) == 1000
