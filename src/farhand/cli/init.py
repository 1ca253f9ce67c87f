"""``farhand init``: a directory to start from."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import Conflict
from .options import json_option
from .output import print_json


@click.command()
@click.argument("directory", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", metavar="NAME", help="The project's name; that of the directory by default.")
@json_option
def init(directory: Path, name: str | None, as_json: bool) -> None:
    """Make a project: one flow, a test of it, and farhand.toml.

    No file that is there already is touched.
    """
    root = directory.resolve()
    files = {
        "farhand.toml": _SETTINGS.format(name=_checked(name) if name else _name_of(root)),
        "greeting.py": _FLOW,
        "test_greeting.py": _TEST,
        ".gitignore": _IGNORED,
    }
    there = [file for file in files if (root / file).exists()]
    if there:
        raise Conflict(f"{root} has {', '.join(there)} already; nothing was written")
    root.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (root / file).write_text(text, encoding="utf-8")
    if as_json:
        print_json({"directory": str(root), "files": list(files)})
        return
    click.echo(f"{root} is a project now. Next:")
    for line in _NEXT:
        click.echo(line.format(directory=directory))


def _name_of(root: Path) -> str:
    import re

    return re.sub(r"[^a-z0-9._-]+", "-", root.name.lower()).strip("._-")[:63] or "default"


def _checked(name: str) -> str:
    import re

    from ..errors import Usage
    from ..model import NAME_PATTERN

    if not re.fullmatch(NAME_PATTERN, name):
        raise Usage(f"--name {name!r} does not match {NAME_PATTERN}")
    return name


_SETTINGS = """\
[project]
name = "{name}"
# Files that the flows read besides those next to their modules:
# include = ["data/*.csv"]

# Settings of a server started in this directory, such as:
# [server]
# port = 8420
"""

_FLOW = '''\
"""A flow of two steps."""

from farhand import flow, get_logger, task


@task(retries=2)
def compose(name: str) -> str:
    return f"Hello, {name}!"


@flow
def greeting(name: str = "world", times: int = 1) -> list[str]:
    """Greet somebody, once or more often."""
    lines = compose.map([name] * times).result()
    for line in lines:
        get_logger().info(line)
    return lines
'''

_TEST = """\
from greeting import compose, greeting


def test_a_greeting_names_whom_it_greets():
    assert compose("Ada") == "Hello, Ada!"


def test_somebody_is_greeted_as_often_as_asked():
    assert greeting("Ada", times=2) == ["Hello, Ada!", "Hello, Ada!"]
"""

_IGNORED = """\
__pycache__/
*.pyc
.pytest_cache/
.venv/
"""

_NEXT = (
    "  pytest {directory}",
    "  farhand check {directory}",
    "  farhand run {directory}/greeting.py:greeting",
    "  farhand serve {directory}",
)
