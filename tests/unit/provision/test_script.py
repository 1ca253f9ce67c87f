"""The job script as text, and what a shell makes of it."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from farhand.provision.config import Profile, Settings
from farhand.provision.interface import Order
from farhand.provision.slurm.script import build, plain, trial

PROFILE = Profile(
    "gpu-small",
    labels=("gpu", "zone=eu"),
    parallel=2,
    sbatch=("--partition=gpu", "--mem-per-cpu=2G"),
    prerun=("module load cuda/12", "source ~/env/bin/activate"),
)
SETTINGS = Settings("slurm", "hpc", (PROFILE,), max_idle_s=300)
ORDER = Order("hpc-gpu-small-1f", PROFILE, "https://flows.example.org/base", "s3cret.to-ken")


def lines(order: Order = ORDER, settings: Settings = SETTINGS) -> list[str]:
    return build(order, settings).splitlines()


def test_it_is_a_login_shells_and_the_users_options_come_last_and_verbatim() -> None:
    """B079, B086: nothing of ours asks for resources, which two options together may forbid."""
    assert lines()[:5] == [
        "#!/bin/bash -l",
        "#SBATCH --job-name=hpc-gpu-small-1f",
        "#SBATCH --output=farhand-%x-%j.out",
        "#SBATCH --partition=gpu",
        "#SBATCH --mem-per-cpu=2G",
    ]
    assert lines()[5] == ""
    assert not any(line.startswith("#SBATCH") for line in lines()[5:])


def test_prerun_is_verbatim_and_in_order_with_neither_e_nor_u_in_force() -> None:
    text = build(ORDER, SETTINGS)
    assert text.index("\nmodule load cuda/12\n") < text.index("\nsource ~/env/bin/activate\n")
    assert "set -" not in text


def test_the_token_is_exported_after_prerun_and_is_no_argument() -> None:
    found = lines()
    (at,) = [n for n, line in enumerate(found) if "s3cret.to-ken" in line]
    assert found[at] == "export FARHAND_WORKER_TOKEN=s3cret.to-ken"
    assert at > found.index("source ~/env/bin/activate")
    given = "--url https://flows.example.org/base --name hpc-gpu-small-1f --parallel 2"
    assert found[-1] == f"exec farhand-worker {given} --labels gpu,zone=eu --max-idle 300"


@pytest.mark.parametrize(
    ("settings", "order", "words"),
    [
        (replace(SETTINGS, max_idle_s=0), ORDER, "--max-idle"),
        (SETTINGS, replace(ORDER, profile=replace(PROFILE, labels=())), "--labels"),
    ],
)
def test_what_has_no_limit_and_what_is_not_there_is_not_named(
    settings: Settings, order: Order, words: str
) -> None:
    assert words not in build(order, settings)


def test_a_pinned_certificate_and_a_link_without_tls_are_named() -> None:
    last = lines(replace(ORDER, pin="sha256:ab"), replace(SETTINGS, insecure=True))[-1]
    assert "--pin sha256:ab --insecure" in last


WORKER = """\
#!/bin/bash
printf '%s\\n' "$FARHAND_WORKER_TOKEN" "$SLURM_JOB_END_TIME" "$@"
"""


def run(script: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of it; a worker that prints what it was given stands on the path."""
    program = tmp_path / "farhand-worker"
    program.write_text(WORKER)
    program.chmod(0o755)
    return subprocess.run(
        ["bash"],
        input=script,
        capture_output=True,
        text=True,
        timeout=20,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **environment},
    )


NASTY = """a'b"c $(touch pwned) `touch pwned` \\ ; touch pwned & \u00e9""" + "x" * 300


@pytest.mark.fault("4.21")
def test_no_shell_executes_what_was_not_meant_to_be(tmp_path: Path) -> None:
    """Quotes, substitutions and 300 characters in every field that may hold them."""
    profile = replace(PROFILE, prerun=(), labels=("gpu",))
    order = Order("m1", profile, f"https://{NASTY}", NASTY, NASTY)
    settings = replace(SETTINGS, profiles=(profile,))
    profile_with = replace(profile, worker=("farhand-worker", NASTY), sbatch=(f"--comment={NASTY}",))
    done = run(build(replace(order, profile=profile_with), settings), tmp_path)
    assert done.stderr == ""
    given = done.stdout.splitlines()
    assert given[0] == NASTY
    assert given[2:] == [
        NASTY, "--url", f"https://{NASTY}", "--name", "m1", "--parallel", "2", "--labels", "gpu",
        "--pin", NASTY, "--max-idle", "300",
    ]  # fmt: skip
    assert not (tmp_path / "pwned").exists()


def test_a_failing_line_of_prerun_ends_the_job_and_is_named(tmp_path: Path) -> None:
    profile = replace(PROFILE, prerun=("true", "echo 'it is' \"gone\" >&2; (exit 7)", "touch later"))
    done = run(build(replace(ORDER, profile=profile), SETTINGS), tmp_path)
    assert done.returncode == 1
    said = "farhand: prerun failed: line 2: echo 'it is' \"gone\" >&2; (exit 7) (exit 7)"
    assert done.stderr.splitlines() == ["it is gone", said]
    assert not (tmp_path / "later").exists()


def test_prerun_may_use_what_is_not_set_and_span_lines(tmp_path: Path) -> None:
    profile = replace(PROFILE, prerun=('echo "$NOT_SET"', "for n in 1 2; do\n  echo $n\ndone", "# a comment"))
    done = run(build(replace(ORDER, profile=profile), SETTINGS), tmp_path)
    assert done.stdout.splitlines()[:4] == ["", "1", "2", "s3cret.to-ken"]


def test_a_worker_that_is_not_there_is_said(tmp_path: Path) -> None:
    profile = replace(PROFILE, prerun=(), worker=("no-such-worker",))
    done = run(build(replace(ORDER, profile=profile), SETTINGS), tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip() == "farhand: there is no no-such-worker here; prerun must make one"


def test_the_end_of_the_job_is_asked_of_slurm_where_its_environment_lacks_it(tmp_path: Path) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/bash\necho 2030-01-02T03:04:05\n")
    squeue.chmod(0o755)
    profile = replace(PROFILE, prerun=())
    order = replace(ORDER, profile=profile)
    done = run(build(order, SETTINGS), tmp_path, SLURM_JOB_ID="7", TZ="UTC")
    assert done.stdout.splitlines()[1] == "1893553445"
    done = run(build(order, SETTINGS), tmp_path, SLURM_JOB_ID="7", SLURM_JOB_END_TIME="42")
    assert done.stdout.splitlines()[1] == "42"
    squeue.write_text("#!/bin/bash\necho NONE\n")
    done = run(build(order, SETTINGS), tmp_path, SLURM_JOB_ID="7")
    assert done.stdout.splitlines()[1] == ""


def test_for_others_than_slurm_it_asks_nothing_of_slurm() -> None:
    text = plain(ORDER, SETTINGS)
    assert "SBATCH" not in text
    assert "squeue" not in text


def test_a_trial_asks_for_the_time_of_the_profile_and_ends_itself_within_a_minute() -> None:
    text = trial(ORDER)
    assert re.findall("^#SBATCH (.*)$", text, re.M)[2:] == list(ORDER.profile.sbatch)
    assert "sleep 60 && " in text
    assert "s3cret" not in text
    assert "module load cuda/12" in text
