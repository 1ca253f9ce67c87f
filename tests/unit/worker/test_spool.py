"""Spools: what is sent, in which batches, and from where after a new session."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farhand_worker.protocol import FRAME_BYTES_MAX, Log, as_dict
from farhand_worker.spool import UPLOADS_AHEAD, WINDOW, Batch, SpoolReader, end_of
from farhand_worker.spool_writer import SpoolWriter

NOTHING: frozenset[str] = frozenset()


def _line(text: str) -> str:
    return json.dumps(["log", {"at": 1, "text": text}], separators=(",", ":"))


def _spool(path: Path, *lines: str, torn: str = "") -> SpoolReader:
    path.write_text("".join(line + "\n" for line in lines) + torn)
    reader = SpoolReader(path)
    reader.grow()
    return reader


def _take(reader: SpoolReader, final: bool = True) -> list[str]:
    batch, _ = reader.next_batch(NOTHING, final)
    if batch is None:
        return []
    reader.mark_sent(batch)
    return batch.lines


def test_lines_are_numbered_from_one_and_a_torn_one_is_not_there(tmp_path: Path) -> None:
    reader = _spool(tmp_path / "s", _line("a"), _line("b"), torn='["log",{"at"')
    batch, _ = reader.next_batch(NOTHING, True)
    assert batch == Batch(1, [_line("a"), _line("b")], len(_line("a")) * 2 + 2)
    reader.mark_sent(batch)
    assert reader.drained
    assert not reader.settled
    reader.acknowledge(2)
    assert reader.settled


def test_a_missing_file_is_an_empty_spool(tmp_path: Path) -> None:
    reader = SpoolReader(tmp_path / "none")
    assert reader.grow() == 0
    assert reader.settled
    assert reader.final() is None
    assert reader.started_at() is None


def test_no_more_than_a_window_is_on_its_way(tmp_path: Path) -> None:
    reader = _spool(tmp_path / "s", *[_line("x" * 60_000)] * 10)
    sent = [_take(reader) for _ in range(10)]
    assert sum(map(bool, sent)) == WINDOW
    reader.acknowledge(1)
    assert _take(reader)
    assert not _take(reader)


def test_a_final_event_goes_out_last_and_only_when_told(tmp_path: Path) -> None:
    final = '["result",{"state":"completed","at":1}]'
    reader = _spool(tmp_path / "s", _line("a"), final)
    assert _take(reader, final=False) == [_line("a")]
    assert _take(reader, final=False) == []
    assert _take(reader) == [final]
    reader.rewind(0)
    assert _take(reader) == [_line("a"), final]
    assert reader.final() == (len(_line("a")) + 1, final.encode())


def test_an_event_waits_for_the_blobs_it_names_and_says_which(tmp_path: Path) -> None:
    naming = '["artifact",{"name":"x"},["sha256:1","sha256:2"]]'
    reader = _spool(tmp_path / "s", _line("a"), naming, _line("b"))
    assert _take(reader) == [_line("a")]
    assert reader.next_batch({"sha256:1"}, True) == (None, ["sha256:2"])
    batch, missing = reader.next_batch({"sha256:1", "sha256:2"}, True)
    assert batch is not None
    assert batch.lines == [naming, _line("b")]
    assert missing == []


DIGESTS = [f"sha256:{letter * 64}" for letter in "ab"]


@pytest.mark.parametrize("named", [["a"], DIGESTS[:1], DIGESTS, [DIGESTS[0], 'x","y'], [DIGESTS[0] + '","x']])
@pytest.mark.parametrize("body", [{}, {"at": 1}, {"args": {"digest": DIGESTS[1]}}, {"text": '},["sha256:'}])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_what_an_event_names_is_found_however_it_is_written(
    tmp_path: Path, named: list[str], body: dict[str, object], separators: tuple[str, str]
) -> None:
    path = tmp_path / "spool"
    path.write_text(json.dumps(["call", body, named], separators=separators) + "\n")
    reader = SpoolReader(path)
    reader.grow()
    assert reader.next_batch(set(), final=False) == (None, named)
    assert reader.next_batch(set(named), final=False)[1] == []


def test_an_event_that_names_nothing_waits_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    ends = [
        ["log", {"text": ['},["' + DIGESTS[0] + '"]]']}],
        ["log", {}, []],
        ["log", {"text": DIGESTS[:1]}, []],
    ]
    path.write_text("".join(json.dumps(end, separators=(",", ":")) + "\n" for end in ends))
    reader = SpoolReader(path)
    reader.grow()
    batch, wanted = reader.next_batch(set(), final=False)
    assert (batch and len(batch.lines), wanted) == (3, [])


def test_what_later_events_name_is_wanted_ahead_a_few_at_a_time(tmp_path: Path) -> None:
    naming = [f'["artifact",{{"name":"x"}},["sha256:{number}"]]' for number in range(9)]
    reader = _spool(tmp_path / "s", _line("a"), *naming)
    batch, missing = reader.next_batch(NOTHING, True)
    assert batch is not None
    assert batch.lines == [_line("a")]
    assert missing == [f"sha256:{number}" for number in range(UPLOADS_AHEAD)]
    reader.mark_sent(batch)
    assert reader.next_batch({"sha256:1", "sha256:2"}, True)[1][:2] == ["sha256:0", "sha256:3"]


def test_an_event_that_fits_no_frame_keeps_its_number(tmp_path: Path) -> None:
    reader = _spool(tmp_path / "s", _line("x" * FRAME_BYTES_MAX), _line("b"))
    (placeholder,) = _take(reader)
    assert "too large" in json.loads(placeholder)[1]["text"]
    batch, _ = reader.next_batch(NOTHING, True)
    assert batch is not None
    assert (batch.first, batch.lines) == (2, [_line("b")])


def test_a_result_that_fits_no_frame_is_a_failure(tmp_path: Path) -> None:
    result = json.dumps(["result", {"state": "completed", "at": 1, "value": "x" * FRAME_BYTES_MAX}])
    reader = _spool(tmp_path / "s", result.replace(", ", ","))
    (line,) = _take(reader)
    assert json.loads(line)[1]["state"] == "failed"


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=12),
    acked=st.integers(0, 12),
    recorded=st.integers(0, 12),
)
def test_a_new_session_gets_exactly_what_is_not_recorded(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], acked: int, recorded: int
) -> None:
    lines = [_line(str(i) + "x" * size) for i, size in enumerate(sizes)]
    reader = _spool(tmp_path_factory.mktemp("s") / "s", *lines)
    while _take(reader):
        reader.acknowledge(min(acked, reader.sent))
    recorded = min(recorded, len(lines))
    reader.rewind(recorded)
    again: list[str] = []
    while batch := _take(reader):
        again.extend(batch)
        reader.acknowledge(reader.sent)
    assert again == lines[recorded:]
    assert reader.settled


def test_the_writer_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text(_line("a") + '\n["log",{"at":')
    writer = SpoolWriter(path)
    size = writer.write([("log", as_dict(Log(1.0, "b")))])
    texts = [json.loads(line)[1]["text"] for line in path.read_text().splitlines()]
    assert texts == ["a", "b"]
    assert size == path.stat().st_size
    writer.close()


def test_when_user_code_began_is_read_from_the_spool(tmp_path: Path) -> None:
    assert _spool(tmp_path / "s", '["started",{"at":12.5,"pid":1,"python":"3"}]').started_at() == 12.5


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the system from now on."""
    asked: list[str] = []
    for name in ("pread", "fstat"):
        usual = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *given, name=name, usual=usual: asked.append(name) or usual(*given)
        )
    return asked


def test_a_spool_that_ends_is_read_once_to_be_sealed_and_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = '["result",{"state":"completed","at":1}]'
    reader = _spool(tmp_path / "s", _line("a"), result)
    asked = _reads(monkeypatch)
    assert reader.final() == (len(_line("a")) + 1, result.encode())
    assert _take(reader) == [_line("a"), result]
    assert reader.drained
    assert asked == ["pread"]


def test_a_torn_line_that_was_seen_is_read_again(tmp_path: Path) -> None:
    reader = _spool(tmp_path / "s", torn='["log",{"at":1,"te')
    assert reader.look() == 18
    assert _take(reader) == []
    (tmp_path / "s").write_text('["log",{},["a"]]]\n')
    assert reader.look() == 18
    assert reader._lines(0, 100)[0] == [b'["log",{},["a"]]]']


@pytest.mark.parametrize("count", [0, 1, 5, 2000])
def test_a_look_says_how_far_the_file_goes_however_much_is_new(tmp_path: Path, count: int) -> None:
    reader = _spool(tmp_path / "s", _line("first"))
    _take(reader)
    with (tmp_path / "s").open("a") as file:
        file.writelines(_line(str(number)) + "\n" for number in range(count))
    assert reader.look() == (tmp_path / "s").stat().st_size
    sent: list[str] = []
    while lines := _take(reader):
        sent += lines
        reader.acknowledge(len(sent) + 1)
    assert sent == [_line(str(number)) for number in range(count)]


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ('["result",{"state":"completed","at":1,"value":{}}]', ("completed", "")),
        ('["result",{"state":"failed","at":1,"message":"no"}]', ("failed", "no")),
        ('["result",{"at":1,"state":"completed"}]', ("completed", "")),
        ('["exit",{"at":1,"reason":"crashed","message":"signal 9"}]', ("crashed", "signal 9")),
    ],
)
def test_a_final_line_says_how_it_ended(line: str, end: tuple[str, str]) -> None:
    assert end_of(line.encode()) == end


def test_a_directory_that_was_cleared_away_is_made_again(tmp_path: Path) -> None:
    """An agent's own may lie among temporary files, and be empty for days."""
    reader = SpoolReader(tmp_path / "spool" / "j-1.engine")
    reader.create()
    assert reader.grow() == 0
    reader.close()
    writer = SpoolWriter(tmp_path / "another" / "j-1.agent")
    assert writer.write([("log", {"at": 1.0, "text": "here"})])
    writer.close()
