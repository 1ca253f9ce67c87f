"""The reader of settings for Pythons that bring none of TOML."""

from __future__ import annotations

import tomllib

import pytest

from farhand_worker.toml import read, tables

SAMPLE = """
# a project and its worker
title = "farhand"   # with a comment
[project]
name = 'weather'
include = [
    "data/*.csv",  # one
    "more",
]
[server]
port = 8_420
lease_s = 15.5
"quoted key" = -1
deep.er.key = 1e3
[worker]
labels = { gpu = true, zone = "eu", "odd name" = 'x' }
empty = {}
none = []
text = "a \\"b\\" \\u00e4 # no comment"
nested = [[1, 2], [3]]
[worker.more]
on = false
[[job]]
a = 1
[[job]]
a = 2
[job.inner]
b = 3
"""


def test_it_reads_what_the_library_reads() -> None:
    assert read(SAMPLE) == tables(SAMPLE) == tomllib.loads(SAMPLE)


def test_lines_may_end_as_on_windows() -> None:
    assert read(SAMPLE.replace("\n", "\r\n")) == tomllib.loads(SAMPLE)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing", "a = 1"])
def test_a_small_file_is_read(text: str) -> None:
    assert read(text) == tomllib.loads(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = 1\nb =", "nothing is no value that is read here .line 2"),
        ("a = 1 b = 2", "the end of the line is expected .line 1"),
        ("a = 1\na = 2", "a is there twice .line 2"),
        ("\n[a\n", "] is expected .line 2"),
        ("a = [1, 2", "] is expected"),
        ("a = {b = 1", "} is expected"),
        ('a = """x"""', "text over several lines; here it takes Python 3.11 or later"),
        ("a = 2026-01-01", "2026-01-01 is no value that is read here"),
        ('a = "\\q"', "has an escape that is not read here"),
        ("a = 1\n[a]\n", "a is no table .line 2"),
        ("= 1", "a name or a text in quotes is expected"),
        ("a = 1\n[[a]]", "a is no array of tables"),
        ('a = "open', "a name or a text in quotes is expected"),
    ],
)
def test_what_it_does_not_read_it_refuses_by_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(text)
