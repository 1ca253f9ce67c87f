"""The pages that come from the code say what the code says."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, generator, page

GENERATOR = generator()


@pytest.mark.parametrize("name", list(GENERATOR.PAGES))
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    blocks = GENERATOR.PAGES[name]()
    assert page(name) == GENERATOR.fill(page(name), blocks), "run: make docs"


@pytest.mark.parametrize("name", list(GENERATOR.PAGES))
def test_every_block_has_its_place_on_the_page(name: str) -> None:
    for block in GENERATOR.PAGES[name]():
        assert f"<!-- generated: {block} -->" in page(name)


def test_every_command_and_option_says_what_it_does() -> None:
    from farhand.cli.program import main

    silent = [
        f"{path} {parameter.name or ''}".strip()
        for path, command in GENERATOR.commands(main, "farhand")
        for parameter in (command, *command.params)
        if not getattr(parameter, "help", None) and parameter.param_type_name != "argument"
    ]
    assert silent == []


def test_every_exception_says_what_is_wrong() -> None:
    assert [cls.__name__ for cls in GENERATOR.exceptions() if not cls.__doc__] == []


def test_every_environment_variable_is_documented() -> None:
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("worker/src/**/*.py")]
    read = {
        name for path in sources for name in re.findall(r"FARHAND_[A-Z_]+[A-Z]\b", path.read_text("utf-8"))
    }
    assert sorted(name for name in read if f"`{name}`" not in page("settings.md")) == []
