"""A worker's settings: one table for flags, variables and farhand.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farhand_worker.settings import SETTINGS, Values, load, parser
from farhand_worker.usage import Usage


def loaded(
    *arguments: str, environ: dict[str, str] | None = None, toml: str = "", directory: Path | None = None
) -> Values:
    if directory is not None:
        (directory / "farhand.toml").write_text(toml)
    return load(vars(parser().parse_args(list(arguments))), environ or {}, directory)


def test_a_flag_comes_before_a_variable_and_that_before_the_file(tmp_path: Path) -> None:
    toml = "[worker]\nname = 'file'\nparallel = 2\nlabels = ['file']\n"
    environ = {"FARHAND_WORKER_NAME": "variable", "FARHAND_WORKER_PARALLEL": "3"}
    values = loaded("--name", "flag", environ=environ, toml=toml, directory=tmp_path)
    assert (values["name"], values["parallel"], values["labels"]) == ("flag", 3, ["file"])
    assert (values["insecure"], values["max_idle"]) == (False, None)
    assert [values.sources[n] for n in ("name", "parallel", "labels", "cpus")] == [
        "flag",
        "environment",
        "farhand.toml",
        "default",
    ]


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--host", "https://a"], "url", "https://a"),
        (["--processors", "4"], "parallel", 4),
        (["--gpus", "0"], "gpus", 0),
        (["--ram-mb", "64G"], "ram_mb", 65536),
        (["--max-idle", "2h"], "max_idle", 7200.0),
        (["--labels", "gpu, cuda12"], "labels", ["gpu", "cuda12"]),
        (["--shared-path", "/a", "--shared-path", "/b/"], "shared_paths", ["/a", "/b"]),
        (["--pass-env", "HF_TOKEN,B"], "pass_env", ["HF_TOKEN", "B"]),
        (["--insecure"], "insecure", True),
    ],
)
def test_an_option_is_read_as_its_row_says(arguments: list[str], name: str, value: Any) -> None:
    assert loaded(*arguments)[name] == value


@pytest.mark.parametrize(
    ("toml", "name", "value"),
    [
        ("host = 'https://a'", "url", "https://a"),
        ("processors = 4", "parallel", 4),
        ("labels = ['gpu', 'zone=eu']", "labels", ["gpu", "zone=eu"]),
        ("labels = {gpu = true, zone = 'eu', old = false}", "labels", ["gpu", "zone=eu"]),
        ("[worker.labels]\nzone = 'eu'", "labels", ["zone=eu"]),
        ("shared_paths = ['/data']", "shared_paths", ["/data"]),
        ("max_idle = 90", "max_idle", 90.0),
        ("insecure = true", "insecure", True),
        ("python = 'python3.12'", "python", "python3.12"),
    ],
)
def test_the_file_says_the_same_in_its_own_words(tmp_path: Path, toml: str, name: str, value: Any) -> None:
    assert loaded(toml="[worker]\n" + toml, directory=tmp_path)[name] == value


def test_paths_in_the_file_are_meant_from_where_it_lies(tmp_path: Path) -> None:
    toml = "[worker]\ntoken_file = 'mill.token'\npython = '.venv/bin/python'\n"
    values = loaded(toml=toml, directory=tmp_path)
    assert values["token_file"] == str(tmp_path / "mill.token")
    assert values["python"] == str(tmp_path / ".venv/bin/python")


@pytest.mark.parametrize(
    ("arguments", "environ", "toml", "words"),
    [
        (["--parallel", "0"], {}, "", "--parallel: '0' is no whole number from 1"),
        (["--shared-path", "here"], {}, "", "--shared-path: 'here' has 'here', which is no absolute path"),
        (["--pass-env", "A B"], {}, "", "which is the name of no variable"),
        (["--token", "a", "--token-file", "b"], {}, "", "--token and --token-file say the same thing"),
        (["--token-fd", "9", "--token-file", "b"], {}, "", "--token and --token-file say the same thing"),
        ([], {"FARHAND_WORKER_GPUS": "two"}, "", "FARHAND_WORKER_GPUS: 'two' is no whole number from 0"),
        ([], {"FARHAND_WORKER_INSECURE": "perhaps"}, "", "is neither true nor false"),
        ([], {}, "ram_mb = 'much'", "ram_mb in farhand.toml: 'much' is no size"),
        ([], {}, "max_idle = 0", "max_idle in farhand.toml: 0 is no duration; give more than 0 seconds"),
        ([], {}, "labels = [1]", "labels in farhand.toml: .* is no list of texts"),
        ([], {}, "labels = {zone = 1}", "says 1 of zone; a label is true, or has a text"),
        ([], {}, "paralel = 1\nx = 2", r"unknown settings under \[worker\]: paralel, x"),
        ([], {}, "token = 'abc'", "unknown settings .* token; the token goes in a file of its own"),
        ([], {}, "parallel = 1\nprocessors = 2", "says parallel twice"),
        ([], {}, "parallel = ", "farhand.toml cannot be read"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_source(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], toml: str, words: str
) -> None:
    with pytest.raises(Usage, match=words):
        loaded(*arguments, environ=environ, toml="[worker]\n" + toml, directory=tmp_path)


def test_a_worker_that_is_no_table_is_said(tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"has no table \[worker\], but worker = 'mill'"):
        loaded(toml="worker = 'mill'", directory=tmp_path)


def test_a_variable_of_another_kind_is_not_used_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    loaded(environ={"FARHAND_WORKER_PORT_80_TCP": "x", "FARHAND_WORKER_NAME": "mill", "OTHER": "y"})
    assert caplog.messages == ["not a setting of a worker, and not used: FARHAND_WORKER_PORT_80_TCP"]


def test_an_empty_variable_says_nothing() -> None:
    assert loaded(environ={"FARHAND_WORKER_GPUS": ""}).sources["gpus"] == "default"


def test_what_a_server_tells_its_own_worker_has_no_variable() -> None:
    hidden = ["url_file", "relay_file", "token_fd", "cwd", "orphan_s"]
    assert [s.name for s in SETTINGS if not s.variable] == hidden


def test_an_option_is_not_abbreviated() -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--tok", "secret"])
