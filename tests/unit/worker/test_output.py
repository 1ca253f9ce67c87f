"""Bytes into lines, however they are cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from farhand_worker.masking import MASK, Masker
from farhand_worker.output import CUT, LINE_BYTES_MAX, LineReader


def _lines(*chunks: bytes) -> list[str]:
    reader = LineReader()
    lines = [line for chunk in chunks for line in reader.feed(chunk)]
    return lines + reader.close()


def test_a_character_split_between_reads_is_whole_again() -> None:
    assert _lines(b"caf\xc3", b"\xa9\n") == ["café"]


def test_what_is_no_text_is_replaced() -> None:
    assert _lines(b"\xff\xfe\n") == ["\ufffd\ufffd"]


def test_a_last_line_without_an_end_is_a_line() -> None:
    assert _lines(b"a\nb") == ["a", "b"]
    assert _lines(b"a\n") == ["a"]
    assert _lines() == []


def test_nul_and_carriage_return() -> None:
    assert _lines(b"a\0b\r\nc\n") == ["a\0b", "c"]


def test_a_long_line_is_cut_once_and_the_next_is_whole() -> None:
    long, after = _lines(b"x" * LINE_BYTES_MAX, b"y" * LINE_BYTES_MAX, b"z\nnext\n")
    assert long == "x" * LINE_BYTES_MAX + CUT
    assert after == "next"


def test_a_reader_is_as_new_after_close() -> None:
    reader = LineReader()
    reader.feed(b"x" * (LINE_BYTES_MAX + 1))
    assert reader.close() == []
    assert reader.feed(b"fresh\n") == ["fresh"]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_where_the_reads_are_cut_makes_no_difference(content: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    pieces = [content[a:b] for a, b in itertools.pairwise(places)]
    assert _lines(*pieces) == _lines(content)


def test_a_secret_is_masked_also_where_the_line_is_cut() -> None:
    reader = LineReader()
    reader.mask = Masker()
    reader.mask.add("hunter22")
    before = b"x" * (LINE_BYTES_MAX - 4)
    lines = [*reader.feed(b"a hunt"), *reader.feed(b"er22\n" + before + b"hunter"), *reader.feed(b"22 and\n")]
    assert lines[0] == f"a {MASK}"
    assert "hunt" not in lines[1]
    assert lines[1].endswith(CUT)
