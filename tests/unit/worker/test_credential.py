"""Where a worker's token comes from, and how it gets out of sight."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from farhand_worker.address import parse
from farhand_worker.credential import credential, token_of
from farhand_worker.hiding import VARIABLE, Exposed, exposed
from farhand_worker.invitation import Credential, default_directory, file_of
from farhand_worker.settings import load, parser


@pytest.mark.parametrize(
    ("arguments", "environ", "shown"),
    [
        ([], {"A": "1"}, None),
        (["--token-file", "f"], {}, None),
        (["--token", "t", "--name", "n"], {"A": "1"}, (["--name", "n"], {"A": "1"}, "t")),
        (["--token=t"], {VARIABLE: "other"}, ([], {}, "t")),
        ([], {VARIABLE: "t"}, ([], {}, "t")),
        (["--token-file", "f"], {VARIABLE: "t"}, (["--token-file", "f"], {}, None)),
        (["--token-fd=3"], {VARIABLE: "t"}, (["--token-fd=3"], {}, None)),
        (["--token"], {}, None),
    ],
)
def test_what_others_could_see_is_taken_out(
    arguments: list[str], environ: dict[str, str], shown: tuple[list[str], dict[str, str], str | None] | None
) -> None:
    found = exposed(arguments, environ)
    assert found == (None if shown is None else Exposed(*shown))


def token(*arguments: str, environ: dict[str, str] | None = None, directory: Path | None = None) -> str:
    return token_of(load(vars(parser().parse_args(list(arguments))), environ or {}, directory))


def test_the_nearest_source_of_the_token_is_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("from.file\n")
    (tmp_path / "farhand.toml").write_text("[worker]\ntoken_file = 'file'\n")
    flag = ["--token-file", str(tmp_path / "file")]
    assert token(directory=tmp_path) == "from.file"
    assert token(environ={VARIABLE: "from.variable"}, directory=tmp_path) == "from.variable"
    assert token(*flag, environ={VARIABLE: "from.variable"}) == "from.file"
    assert token(environ={VARIABLE: "a.b", VARIABLE + "_FILE": str(tmp_path / "file")}) == "a.b"
    assert token(environ={VARIABLE + "_FILE": str(tmp_path / "file")}) == "from.file"


def test_a_token_that_an_invitation_left_is_used_and_its_place_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When it is refused, somebody must know which one it was."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    caplog.set_level("INFO", "farhand.worker")
    address = parse("http://127.0.0.1:1")
    place = file_of(address, default_directory(os.environ))
    place.parent.mkdir()
    place.write_text(json.dumps(Credential("a.token", "mill")._asdict()))
    values = load(vars(parser().parse_args(["--url", address.text])), {}, None)
    assert credential(values, lambda: address, "").token == "a.token"
    assert caplog.messages == [f"with the token that an earlier invitation left in {place}"]
