"""Flows that go to the limits: of size, of memory, of time, and of what they leave behind."""

from __future__ import annotations

import base64
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from breakable import step, wait_for, witness

from farhand import flow, get_logger, secret, task, variable

MEGABYTE = 1024 * 1024
kept: list[bytes] = []


@flow
def large(size: int) -> str:
    """Return a text of that many characters."""
    return "x" * size


@flow
def flood(lines: int) -> None:
    """Print that many lines."""
    for number in range(lines):
        print(f"line {number}")


@flow
def long_lines(size: int) -> None:
    """Write lines of that many characters in every way there is."""
    print("a" * size)
    sys.stdout.buffer.write(b"b" * size + b"\n")
    for _ in range(size // MEGABYTE):
        print("c" * MEGABYTE, end="")
    print()
    get_logger().info("d" * size)
    subprocess.run([sys.executable, "-c", f"print('e' * {size})"], check=True)
    print("after")


@flow(crash_retries=0)
def killed(path: str) -> None:
    """End as the kernel ends what takes too much memory."""
    witness(path, "begin")
    os.kill(os.getpid(), signal.SIGKILL)


@flow
def greedy() -> None:
    """Take more memory than there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (512 * MEGABYTE, hard))
    try:
        taken = bytearray(1024 * MEGABYTE)
        print(len(taken))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@flow(crash_retries=0)
def overcome(group: str) -> int:
    """Take more memory than the control group has that this engine goes into."""
    Path(group).write_text(str(os.getpid()))
    print("taking", flush=True)
    taken = [bytes([number % 255 + 1]) * MEGABYTE for number in range(1024)]
    return len(taken)


@flow
def keeping(megabytes: int) -> int:
    """Hold memory in a global, and tell in which process."""
    kept.append(os.urandom(megabytes * MEGABYTE))
    return os.getpid()


@flow
def where() -> int:
    """The process that runs this."""
    return os.getpid()


@flow(isolated=True)
def alone() -> int:
    """The process that runs this, and nothing else."""
    return os.getpid()


_LISTENER = """
import os, signal, socket, sys, time
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
open(sys.argv[2], "a").write("listens\\n")
time.sleep(600)
"""


@flow
def holding_a_port(port: int, path: str, gate: str) -> None:
    """Leave a child that holds a port and will not go, and wait."""
    subprocess.Popen([sys.executable, "-c", _LISTENER, str(port), path])
    wait_for(gate)


@task
def child(number: int) -> int:
    return subprocess.Popen(["true"]).pid + number * 0


@flow
def childish(count: int) -> list[int]:
    """Start children and never ask for their ends; tell their pids and this process's."""
    return [*child.map(range(count)).result(), os.getpid()]


@flow
def stepwise(path: str, gate: str) -> list[int]:
    """Two tasks, a wait for a file, and a third task."""
    done = [step(path, 1), step(path, 2)]
    wait_for(gate)
    return [*done, step(path, 3)]


# ---------------------------------------------------------------- limits, hooks and secrets


@flow(silence_timeout=0.5)
def silent(path: str, seconds: float) -> None:
    """Say nothing for a while."""
    witness(path, "begin")
    time.sleep(seconds)


@flow(silence_timeout=1)
def talking_child() -> str:
    """Say nothing, but have a child that does, and flushes nothing."""
    code = "import time\nfor n in range(12): print(n); time.sleep(0.2)"
    subprocess.run([sys.executable, "-c", code], check=True)
    return "done"


@flow(retries=2, retry_on=OSError)
def picky(path: str) -> None:
    """Fail with what is not worth a retry."""
    witness(path, "begin")
    raise ValueError("no retry helps")


@flow(max_concurrent=1)
def one_at_a_time(path: str, gate: str) -> None:
    """Wait for a file; two of these never run at once."""
    witness(path, "begin")
    wait_for(gate)


def tell(summary: dict[str, Any]) -> None:
    """Write down that a hook was called; its parameter ``path`` says where."""
    witness(str(summary["params"]["path"]), f"{summary['state']}:{summary['reason']}")


@flow(crash_retries=1, on_completed=tell, on_failed=tell, on_cancelled=tell, on_crashed=tell)
def told(path: str, how: str, gate: str = "") -> str:
    """End in the way that is asked for; hooks tell of it."""
    witness(path, "begin")
    if how == "fail":
        raise ValueError("as asked")
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "wait":
        wait_for(gate)
    return how


@flow(secrets=["db"])
def leaking(port: int) -> list[Any]:
    """Give a secret away in every way there is."""
    value = secret("db")
    print("plain", value)
    sys.stdout.write(value[:5])
    sys.stdout.flush()
    sys.stdout.write(value[5:] + "\n")
    print(base64.b64encode(f"user:{value}".encode()).decode())
    get_logger().warning("logged %s", value)
    code = "import sys; sys.stdout.write(sys.argv[1][:5]); sys.stdout.flush(); print(sys.argv[1][5:])"
    subprocess.run([sys.executable, "-c", code, value], check=True)
    os.write(2, f"raw {value}\n".encode())
    with socket.create_connection(("127.0.0.1", port)) as witness_of_the_value:
        witness_of_the_value.sendall(value.encode())
    returned(value)
    return [value, variable("region")]


@task
def returned(value: str) -> dict[str, str]:
    return {"password": value}


@flow(secrets=["db"])
def leaking_error() -> None:
    """Raise an exception that holds a secret."""
    raise ValueError(f"cannot sign in with {secret('db')}")


@flow
def undeclared() -> str:
    """Read a secret that is not declared."""
    return secret("db")
