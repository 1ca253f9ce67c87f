"""The tests' own PostgreSQL: who may end it, and what is said when somebody did."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack

import psutil
import pytest

from tests.harness.processes import send
from tests.lab import postgresql
from tests.optional import need


def test_a_cluster_that_was_killed_says_how_it_ended_and_what_it_logged() -> None:
    need("PostgreSQL")
    with postgresql.cluster() as cluster:
        assert "runs as process" in cluster.condition()
        send(cluster.pid, signal.SIGQUIT)
        cluster._process.wait(30)
        with pytest.raises(ConnectionError) as error:
            cluster.execute("SELECT 1")
    said = str(error.value)
    assert "has ended with exit code" in said
    assert "no test stopped it" in said
    assert "received immediate shutdown request" in said


def test_a_child_that_was_forked_and_ends_does_not_end_the_cluster() -> None:
    closed: list[int] = []
    stack = ExitStack()
    stack.callback(lambda: closed.append(os.getpid()))
    postgresql._close_here(stack, os.getpid() + 1)
    assert closed == []
    postgresql._close_here(stack, os.getpid())
    assert closed == [os.getpid()]


def test_the_cluster_carries_no_mark_of_a_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clearing a deployment away kills all that carries its mark."""
    monkeypatch.setenv("WITNESS_MARK", "x")
    assert "WITNESS_MARK" not in postgresql._environment()


ENDLESS = """
import sys
from tests.lab import postgresql
with postgresql.cluster() as cluster:
    print(cluster.pid, cluster._directory, flush=True)
    sys.stdin.read()
"""


def test_a_cluster_ends_with_a_session_that_is_killed() -> None:
    need("PostgreSQL")
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as session:
        assert session.stdout is not None
        pid, directory = session.stdout.readline().split()
        server = psutil.Process(int(pid))
        session.kill()
    server.wait(20)
    shutil.rmtree(directory)
