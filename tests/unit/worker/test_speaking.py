"""The lines of a worker: as the logging module would stamp them, only cheaper."""

from __future__ import annotations

import io
import logging
import time

import pytest

from farhand_worker.speaking import Line, Noted, Speaker, Stamped
from farhand_worker.tally import RecentMessages


@pytest.mark.parametrize("created", [0.0, 1.5, 1.999, 2.0, 1_700_000_000.25])
def test_a_line_has_time_and_level_as_the_library_would_write_them(created: float) -> None:
    record = logging.LogRecord("farhand.worker", logging.WARNING, "", 0, "run %s", ("a",), None)
    record.created, record.msecs = created, created % 1 * 1000
    stamped = Stamped()
    usual = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    for _ in range(2):
        assert stamped.format(record) == usual.format(record)


def test_a_line_that_was_noted_is_said_with_its_time_and_before_what_came_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("farhand.test.noted")
    caplog.set_level(logging.INFO, log.name)
    noted = Noted(log)
    before = time.time()
    noted.info("run a")
    after = time.time()
    assert caplog.messages == []
    log.warning("cancel a")
    noted.info("run b")
    noted.close()
    log.info("the end")
    assert caplog.messages == ["run a", "cancel a", "run b", "the end"]
    assert before <= caplog.records[0].created <= after
    assert 0 <= caplog.records[0].msecs < 1000


def test_what_is_noted_for_a_log_that_says_only_warnings_is_not_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("farhand.test.quiet")
    log.setLevel(logging.WARNING)
    noted = Noted(log)
    noted.info("run a")
    noted.close()
    assert caplog.messages == []


@pytest.mark.parametrize("created", [0.0, 1.5, 1.999, 1_700_000_000.25])
def test_lines_without_a_record_read_as_others_do_and_are_written_together(created: float) -> None:
    writes: list[str] = []
    stream = io.StringIO()
    stream.write = writes.append  # type: ignore[method-assign, assignment]
    speaker = Speaker(stream)
    speaker.say([Line(created, "run a"), Line(created, "run b")])
    record = logging.LogRecord("farhand.worker", logging.INFO, "", 0, "run a", None, None)
    record.created, record.msecs = created, created % 1 * 1000
    assert writes == [f"{speaker.format(record)}\n" + speaker.format(record).replace("a", "b") + "\n"]


def test_a_stream_that_nobody_reads_any_more_is_no_trouble() -> None:
    stream = io.StringIO()
    speaker = Speaker(stream)
    stream.close()
    speaker.say([Line(1.0, "run a")])


def test_what_was_noted_is_among_the_last_messages_of_a_worker() -> None:
    log = logging.getLogger("farhand.test.recent")
    log.setLevel(logging.INFO)
    recent = RecentMessages()
    log.addHandler(recent)
    noted = Noted(log)
    noted.info("run a")
    log.warning("cancel a")
    noted.close()
    log.removeHandler(recent)
    assert [(message.level, message.text) for message in recent.messages] == [
        ("info", "run a"),
        ("warning", "cancel a"),
    ]
