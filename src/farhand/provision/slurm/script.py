"""The job script: a worker that dials back. Pure; every value is quoted, what the user wrote is verbatim.

The user's ``sbatch`` lines come last among the options and add all that asks for resources: two such
options may exclude each other. ``prerun`` is run by a login shell as it is written, without ``set -e`` or
``set -u``; each entry is one command, and the first that fails ends the job and says which it was.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from farhand_worker.hiding import VARIABLE as TOKEN_VARIABLE

from ..config import Settings
from ..interface import Order

SAYS = "farhand:"
"""What lines of a job's output begin with that are ours."""

_CHECK = f"""\
farhand_check() {{
  [ "$1" -eq 0 ] && return
  printf '%s prerun failed: line %s: %s (exit %s)\\n' {SAYS} "$2" "$3" "$1" >&2
  exit 1
}}
"""

_TIMER = f"""\
farhand_timer() {{
  sleep 60 && printf '%s prerun took longer than a minute\\n' {SAYS} >&2 && kill -KILL $$
}}
farhand_timer </dev/null >/dev/null &
"""

_END_TIME = """\
if [ -n "${SLURM_JOB_ID:-}" ] && [ -z "${SLURM_JOB_END_TIME:-}" ]; then
  farhand_end=$(timeout 10 squeue --noheader --jobs="$SLURM_JOB_ID" --format=%e 2>/dev/null)
  farhand_end=$(date -d "$farhand_end" +%s 2>/dev/null) && export SLURM_JOB_END_TIME="$farhand_end"
fi
"""


def build(order: Order, settings: Settings) -> str:
    """The script of a Slurm job."""
    options = [f"--job-name={order.name}", "--output=farhand-%x-%j.out", *order.profile.sbatch]
    head = ["#!/bin/bash -l", *(f"#SBATCH {option}" for option in options)]
    return "\n".join([*head, "", _CHECK + worker(order, settings)])


def plain(order: Order, settings: Settings) -> str:
    """The same for whoever is no Slurm: no options, and nothing asked of Slurm."""
    return "\n".join(["#!/bin/bash -l", "", _CHECK + worker(order, settings, of_slurm=False)])


def worker(order: Order, settings: Settings, of_slurm: bool = True) -> str:
    """What becomes the worker: ``prerun``, then its token in the environment, then its program."""
    command = shlex.join(order.profile.worker)
    missing = f"{SAYS} there is no {order.profile.worker[0]} here; prerun must make one"
    lines = [*_prerun(order.profile.prerun)]
    lines.append(
        f"command -v {shlex.quote(order.profile.worker[0])} >/dev/null ||"
        f" {{ printf '%s\\n' {shlex.quote(missing)} >&2; exit 1; }}"
    )
    if of_slurm:
        lines.append(_END_TIME.rstrip())
    lines.append(f"export {TOKEN_VARIABLE}={shlex.quote(order.token)}")
    lines.append(f"exec {command} {shlex.join(arguments(order, settings))}")
    return "\n".join(lines) + "\n"


def arguments(order: Order, settings: Settings) -> list[str]:
    """The worker's own options. What the machine has it finds out by itself."""
    profile = order.profile
    there = ["--url", order.url, *(["--relay-file", order.url_file] if order.url_file else [])]
    found = [*there, "--name", order.name, "--parallel", str(profile.parallel)]
    found += ["--labels", ",".join(profile.labels)] if profile.labels else []
    found += ["--pin", order.pin] if order.pin else []
    found += ["--insecure"] if settings.insecure else []
    return found + (["--max-idle", f"{settings.max_idle_s:g}"] if settings.max_idle_s else [])


def trial(order: Order) -> str:
    """A script that asks for the same, its time too, runs ``prerun``, and ends, within a minute at most."""
    options = [f"--job-name={order.name}", "--output=farhand-%x-%j.out", *order.profile.sbatch]
    head = ["#!/bin/bash -l", *(f"#SBATCH {option}" for option in options)]
    program = shlex.quote(order.profile.worker[0])
    return "\n".join([*head, "", _TIMER, _CHECK, *_prerun(order.profile.prerun), f"command -v {program}", ""])


def _prerun(commands: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for number, command in enumerate(commands, 1):
        lines += [command, f"farhand_check $? {number} {shlex.quote(command)}"]
    return lines
