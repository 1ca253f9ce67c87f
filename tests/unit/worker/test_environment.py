"""What user code sees of the worker's environment."""

from __future__ import annotations

import pytest

from farhand_worker.environment import THREAD_CAPS, engine_environment, user_environment


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "github_token", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "API_KEY", "X_CREDENTIALS",
     "DATABASE_URL", "DATABASE_URL_RO", "SENTRY_DSN", "SSH_AUTH_SOCK", "KUBECONFIG"],
)  # fmt: skip
def test_what_looks_like_a_credential_is_withheld_and_named(name: str) -> None:
    kept, withheld = user_environment({name: "x", "PATH": "/bin"})
    assert kept == {"PATH": "/bin"}
    assert withheld == [name]


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "PATH", "KEYBOARD", "CUDA_VISIBLE_DEVICES"])
def test_what_only_looks_a_little_like_one_is_kept(name: str) -> None:
    assert user_environment({name: "x"}) == ({name: "x"}, [])


def test_farhands_own_settings_are_left_out_without_a_word() -> None:
    assert user_environment({"FARHAND_HOME": "x", "FARHAND_WORKER_TOKEN": "y"}) == ({}, [])


def test_an_engine_gets_its_id_and_unbuffered_output() -> None:
    """B107: what it starts inherits that, so that a child's lines are there when they are printed."""
    environ = engine_environment({"PATH": "/bin"}, "e.1")
    assert environ == {"PATH": "/bin", "FARHAND_ENGINE": "e.1", "PYTHONUNBUFFERED": "1"}


def test_an_engine_is_told_the_cores_and_the_devices_that_its_job_was_given() -> None:
    """B069: inherited masks and caps are those of the worker; what a job was given takes their place."""
    base = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "OMP_NUM_THREADS": "64"}
    environ = engine_environment(base, "e.1", 4, ("GPU-b",))
    assert {environ[name] for name in THREAD_CAPS} == {"4"}
    assert environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    assert engine_environment(base, "e.1", None, ())["CUDA_VISIBLE_DEVICES"] == ""
    assert engine_environment(base, "e.1").items() >= base.items()
