"""The warden's look at processes, on real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from farhand_worker import warden

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
    assert warden.parents()[os.getpid()] == os.getppid()


def test_a_kill_reaches_every_session_below() -> None:
    process = _tree(3)
    assert process.stdout is not None
    killed = warden.kill_trees([process.pid])
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
        "import os, sys\nfrom farhand_worker import warden\nwarden.become_subreaper()\n"
        f"import subprocess\nsubprocess.run([sys.executable, '-c', {outer!r}])\n"
        "sys.stdin.read()\nspared = set()\n"
        "while True:\n"
        "    below = warden.children_of(os.getpid())\n"
        "    if not below: break\n"
        "    warden.kill_trees(below)\n"
        "    for pid in below: warden.collect(pid)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", keeper], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"deep\n"
    process.stdin.close()
    assert process.wait(60) == 0, "long before the processes end by themselves"
    assert process.stdout.read() == b""
    process.stdout.close()


def test_killing_what_is_gone_is_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    warden.kill_trees([process.pid])


def test_the_warden_imports_the_standard_library_alone_and_runs_as_a_file() -> None:
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-E", warden.__file__, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--fd" in result.stdout
