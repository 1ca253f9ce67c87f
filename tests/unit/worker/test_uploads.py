"""What reports name is brought once, again while that may help, and by the short way where there is one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from farhand_worker.blobs import NotFetched
from farhand_worker.inquiries import NotAnswered
from farhand_worker.reports import Reports, leftovers
from farhand_worker.transfer import Claim, TransferFailed
from farhand_worker.uploads import Uploads

pytestmark = pytest.mark.anyio

DIGEST = "sha256:" + "a" * 64
RESULT = f'["result",{{"state":"completed","at":1}},["{DIGEST}"]]\n'
ARTIFACT = f'["artifact",{{"name":"x"}},["{DIGEST}"]]\n'


class FakeCache:
    """Hands over and sends as it was told to, and notes which of them was asked for."""

    def __init__(self, handed: object = False, *sent: BaseException | None) -> None:
        self.handed = handed
        self.sent = list(sent)
        self.asked: list[str] = []

    async def hand_over(self, digest: str, source: Path, claim: Claim) -> bool:
        self.asked.append("hand over")
        if isinstance(self.handed, BaseException):
            raise self.handed
        return bool(self.handed)

    async def upload(self, digest: str, source: Path, claim: Claim) -> None:
        assert (claim, source.name) == (Claim("j", 7), "a" * 64)
        self.asked.append("send")
        error = self.sent.pop(0) if self.sent else None
        if error is not None:
            raise error


class Bench:
    """The uploads of one attempt, and what is said of them."""

    def __init__(self, cache: FakeCache) -> None:
        self.woken = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.uploads = Uploads(cache, self._begin, self._wake, lambda: 0.0)  # type: ignore[arg-type]

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def _wake(self) -> None:
        self.woken += 1

    async def bring(self, reports: Reports) -> None:
        """All that the next lines name."""
        reports.next()
        self.uploads.want(reports)
        self.uploads.want(reports)
        await asyncio.gather(*self.tasks)


def written(directory: Path, line: str) -> Reports:
    reports = Reports(directory, directory / "outgoing", "j", 7)
    reports.create()
    Path(reports.engine_path).write_text(line)
    reports.grow()
    if line == RESULT:
        reports.sealed = True
    return reports


@pytest.mark.parametrize(
    ("line", "handed", "asked"),
    [
        (RESULT, True, ["hand over"]),
        (RESULT, False, ["hand over", "send"]),
        (ARTIFACT, True, ["send"]),
    ],
)
async def test_a_value_is_handed_over_where_that_can_be_and_a_file_of_user_code_is_sent(
    tmp_path: Path, line: str, handed: bool, asked: list[str]
) -> None:
    cache = FakeCache(handed)
    bench, reports = Bench(cache), written(tmp_path, line)
    await bench.bring(reports)
    assert cache.asked == asked
    assert reports.uploaded == {DIGEST}
    assert bench.woken == 1, "once, however often it is wanted"


async def test_what_an_earlier_agent_left_is_read_before_it_is_believed(tmp_path: Path) -> None:
    written(tmp_path, RESULT).close()
    (left,) = leftovers(tmp_path, tmp_path / "outgoing")
    left.grow()
    left.sealed = True
    cache = FakeCache(True)
    await Bench(cache).bring(left)
    assert cache.asked == ["send"]


async def test_it_is_tried_again_while_that_may_help(tmp_path: Path) -> None:
    trouble = [TransferFailed("no answer", False), TransferFailed("503", False)]
    trouble += [OSError(errno.EMFILE, "too many open files"), PermissionError()]
    cache = FakeCache(False, *trouble)
    reports = written(tmp_path, RESULT)
    await Bench(cache).bring(reports)
    assert cache.asked == ["hand over", "send"] * 5
    assert reports.uploaded == {DIGEST}


@pytest.mark.parametrize("error", [FileNotFoundError(), NotFetched("it is not what it was")])
async def test_what_is_not_on_this_disk_any_more_is_lost(tmp_path: Path, error: BaseException) -> None:
    reports = written(tmp_path, RESULT)
    bench = Bench(FakeCache(False, error))
    await bench.bring(reports)
    assert (reports.lost, reports.uploaded) == ({DIGEST}, set())
    assert bench.woken == 1


async def test_for_a_job_that_is_not_ours_any_more_nothing_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reports = written(tmp_path, RESULT)

    class Fenced(FakeCache):
        async def hand_over(self, digest: str, source: Path, claim: Claim) -> bool:
            reports.gone = True
            return await super().hand_over(digest, source, claim)

    cache = Fenced(NotAnswered("the job is not ours any more", True))
    await Bench(cache).bring(reports)
    assert cache.asked == ["hand over"]
    assert caplog.records == []


async def test_what_is_no_digest_is_lost_at_once(tmp_path: Path) -> None:
    reports = written(tmp_path, ARTIFACT.replace(DIGEST, "../../etc/passwd"))
    cache = FakeCache(True)
    await Bench(cache).bring(reports)
    assert cache.asked == []
    assert reports.lost == {"../../etc/passwd"}
