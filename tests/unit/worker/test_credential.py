"""Where a worker's token comes from, and how it gets out of sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from farhand_worker.credential import token_of
from farhand_worker.hiding import VARIABLE, Exposed, exposed
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
