"""The look at processes, and their end, on real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from farhand_worker import trees

TREE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if int(sys.argv[1]):
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(int(sys.argv[1]) - 1), sys.argv[2]],
                     start_new_session=True)
else:
    print("deep", flush=True)
time.sleep(600)
"""


def _tree(depth: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", TREE, str(depth), TREE], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"deep\n"
    return process


def test_every_process_has_its_parent() -> None:
    assert trees.parents()[os.getpid()] == os.getppid()


def test_a_kill_reaches_every_session_below() -> None:
    process = _tree(3)
    assert process.stdout is not None
    killed = trees.kill_trees([process.pid])
    assert len(killed) == 4
    assert process.stdout.read() == b""  # the pipe closes when the last of them is gone
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()


def test_a_kill_is_not_outrun_by_a_process_that_forks_all_the_time() -> None:
    code = (
        "import os, time\nos.setsid()\nprint('deep', flush=True)\nend = time.time() + 120\n"
        "while time.time() < end:\n"
        "    if os.fork(): os._exit(0)\n"
    )
    outer = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {code!r}])\n"
    keeper = (
        "import os, sys\nfrom farhand_worker import trees\ntrees.become_subreaper()\n"
        f"import subprocess\nsubprocess.run([sys.executable, '-c', {outer!r}])\n"
        "sys.stdin.read()\nspared = set()\n"
        "while True:\n"
        "    below = trees.children_of(os.getpid())\n"
        "    if not below: break\n"
        "    trees.kill_trees(below)\n"
        "    for pid in below: trees.collect(pid)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", keeper], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"deep\n"
    process.stdin.close()
    assert process.wait(60) == 0, "long before the processes end by themselves"
    assert process.stdout.read() == b""
    process.stdout.close()


def test_a_process_of_one_thread_knows_its_own_children_dead_or_alive() -> None:
    code = (
        "import os, subprocess, sys\nfrom farhand_worker import trees\n"
        "lives = [subprocess.Popen(['sleep', '60']) for _ in range(3)]\n"
        "dead = os.fork()\nif dead == 0: os._exit(0)\nos.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)\n"
        "assert trees.own_children() == {dead, *(each.pid for each in lives)}\n"
        "assert trees.own_children() == trees.children_of(os.getpid())\n"
        "for each in lives: each.kill(); each.wait()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_killing_what_is_gone_is_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    trees.kill_trees([process.pid])
