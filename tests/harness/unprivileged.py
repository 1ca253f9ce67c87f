"""Python code in a process that file permissions hold for, whoever runs the tests."""

from __future__ import annotations

import os
import subprocess
import sys

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2

_DROPPING = f"""
import ctypes, os, sys
prctl = ctypes.CDLL(None, use_errno=True).prctl
for capability in ({_CAP_DAC_OVERRIDE}, {_CAP_DAC_READ_SEARCH}):
    if prctl({_PR_CAPBSET_DROP}, capability, 0, 0, 0):
        sys.exit("root's right to read every file cannot be given up: " + os.strerror(ctypes.get_errno()))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Root keeps its name, and so its way through directories that are its own, and loses what makes it pass
over the permissions of files; from the next program on."""


def python(code: str, *arguments: str) -> str:
    """Run ``code`` as root without root's pass over file permissions, or as who we are; what it prints."""
    command = ["-c", code, *arguments]
    if os.geteuid() == 0:
        command = ["-c", _DROPPING, *command]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
