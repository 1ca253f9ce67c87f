"""What several jobs want at once is fetched once; and who is told what went wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from farhand.blobs import Blobs, digest_of
from farhand_worker.address import parse
from farhand_worker.ahead import Ahead
from farhand_worker.blobs import BlobCache, NotFetched
from farhand_worker.cache import Cache
from farhand_worker.inquiries import NotAnswered
from farhand_worker.nearby import Nearby, look
from farhand_worker.options import Options
from farhand_worker.runtimes import Runtimes
from farhand_worker.state import StateDirectory
from farhand_worker.transfer import Claim, Transfer, TransferFailed

pytestmark = pytest.mark.anyio

DIGEST = "sha256:" + "0" * 64
NOTHING_AHEAD = Ahead(
    Options(lambda: parse("http://127.0.0.1:1", False), "token", "name", Path()),
    Runtimes(Path(), ""),
    lambda _: None,
)
NOTHING_AHEAD.found.set_result(None)


class Failing(Transfer):
    """Gets nothing: each claim that asks is answered by the failure it was given."""

    def __init__(self, **failures: TransferFailed | None) -> None:
        super().__init__("token")
        self._failures = failures
        self.asked: list[str] = []

    def get(
        self, path: str, digest: str, target: Path, claim: Claim | None = None, named: bool = False
    ) -> None:
        assert claim is not None
        self.asked.append(claim.job)
        failure = self._failures[claim.job]
        if failure is not None:
            raise failure
        target.write_bytes(b"")


def cache_of(directory: Path, transfer: Transfer) -> Cache:
    state = StateDirectory(directory)
    return Cache(state, transfer, "python3", BlobCache(directory / "blobs"), NOTHING_AHEAD)


async def wanted(cache: Cache, *jobs: str) -> list[Path | BaseException]:
    asking = [cache.blob(DIGEST, Claim(job, 1)) for job in jobs]
    return await asyncio.gather(*asking, return_exceptions=True)


async def test_a_fetch_that_failed_has_failed_for_all_who_waited_for_it(tmp_path: Path) -> None:
    transfer = Failing(one=TransferFailed("the server answered 404", True, 404))
    told = await wanted(cache_of(tmp_path, transfer), "one", "two", "three")
    assert [str(error) for error in told] == ["the server answered 404"] * 3
    assert transfer.asked == ["one"]


class Refusing(Transfer):
    """Takes nothing, since its digest is another."""

    def put(self, digest: str, source: Path, claim: Claim) -> None:
        raise TransferFailed("the server answered 422", True, 422)


async def test_a_value_that_is_not_what_it_was_on_this_disk_is_lost(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, Refusing("token"))
    source = tmp_path / "saved"
    source.write_bytes(b"content")
    with pytest.raises(TransferFailed):
        await cache.upload(digest_of(b"content"), source, Claim("one", 1))
    with pytest.raises(NotFetched, match="not what it was"):
        await cache.upload(digest_of(b"other"), source, Claim("one", 1))


class Asked(Transfer):
    """Answers what is asked of a laid file by a status, and notes what is sent."""

    def __init__(self, status: int) -> None:
        super().__init__("token")
        self.status = status
        self.sent: list[str] = []

    def ask_to_take(self, digest: str, token: str, size: int, claim: Claim) -> None:
        if self.status != 201:
            raise TransferFailed(f"the server answered {self.status}", True, self.status)

    def put(self, digest: str, source: Path, claim: Claim) -> None:
        self.sent.append(digest)


@pytest.mark.parametrize(
    ("status", "sent", "goes_on"),
    [(201, False, True), (422, True, True), (404, True, False), (409, True, False), (403, None, True)],
)
async def test_what_the_server_does_not_take_from_its_directory_is_sent(
    tmp_path: Path, status: int, sent: bool | None, goes_on: bool
) -> None:
    blobs = Blobs(tmp_path / "server")
    nearby = Nearby(None)
    nearby.prove(blobs.write_probe())
    transfer = Asked(status)
    cache = Cache(
        StateDirectory(tmp_path), transfer, "python3", BlobCache(tmp_path / "blobs"), NOTHING_AHEAD, nearby
    )
    source = tmp_path / "saved"
    source.write_bytes(b"content")
    digest = digest_of(b"content")
    if sent is None:
        with pytest.raises(TransferFailed, match="403"):
            await cache.upload(digest, source, Claim("one", 1))
    else:
        await cache.upload(digest, source, Claim("one", 1))
    assert transfer.sent == [digest] * bool(sent)
    assert nearby.takes is goes_on
    assert list((tmp_path / "server").glob("*/.*")) == [], "nothing stays laid"


async def test_what_was_refused_to_one_job_is_asked_for_by_the_next(tmp_path: Path) -> None:
    transfer = Failing(one=TransferFailed("not its artifact", True, 403), two=None)
    refused, *given = await wanted(cache_of(tmp_path, transfer), "one", "two", "three")
    assert isinstance(refused, NotFetched)
    assert given == [tmp_path / "blobs" / ("0" * 64)] * 2
    assert transfer.asked == ["one", "two"]


def beside(tmp_path: Path) -> tuple[Cache, Blobs, Nearby]:
    """The cache of the server's own worker, which sends nothing and gets nothing."""
    blobs, nearby = Blobs(tmp_path / "server"), Nearby(None)
    nearby.prove(blobs.write_probe())
    mine = Cache(
        StateDirectory(tmp_path),
        Transfer("token"),
        "python3",
        BlobCache(tmp_path / "blobs"),
        NOTHING_AHEAD,
        nearby,
    )
    return mine, blobs, nearby


async def test_beside_the_server_a_value_is_not_copied_and_what_user_code_gets_is(tmp_path: Path) -> None:
    cache, blobs, nearby = beside(tmp_path)
    cache._transfer.copy = nearby.copy
    digest = blobs.put_bytes(b"content")
    values = await asyncio.gather(*(cache.value(digest, Claim("one", 1)) for _ in range(3)))
    assert values == [blobs.path(digest)] * 3
    assert await cache.blob(digest, Claim("one", 1), named=True) == tmp_path / "blobs" / digest[7:]
    assert cache.seen_nearby(digest, [7, 1, 1]) is None, "it is not what the server has seen"
    assert cache.seen_nearby(digest, list(look(blobs.path(digest)))) == blobs.path(digest)
    assert cache.seen_nearby(digest, []) is None
    assert cache.seen_nearby("../../etc/passwd", [7, 1, 1]) is None


async def test_a_value_that_does_not_lie_there_as_it_should_is_fetched(tmp_path: Path) -> None:
    cache, blobs, _ = beside(tmp_path)
    digest = blobs.put_bytes(b"content")
    blobs.path(digest).write_bytes(b"another")
    cache._transfer = Failing(one=TransferFailed("the server answered 404", True, 404))
    with pytest.raises(NotFetched, match="404"):
        await cache.value(digest, Claim("one", 1))


@pytest.mark.parametrize(
    ("answers", "handed"),
    [
        ([{"settled": True}], True),
        ([{"settled": False}, {"settled": True}], True),
        (["not_found"], False),
        (["conflict"], False),
        (["digest_mismatch"], False),
        (["store_failed"], None),
        ([""], None),
    ],
)
async def test_a_value_is_handed_over_by_its_second_name_or_brought_otherwise(
    tmp_path: Path, answers: list[object], handed: bool | None
) -> None:
    cache, *_ = beside(tmp_path)
    asked: list[dict[str, object]] = []
    source = tmp_path / "saved"
    source.write_bytes(b"content")
    digest = digest_of(b"content")

    async def ask(claim: Claim, kind: str, args: dict[str, object]) -> dict[str, object]:
        assert (claim, kind) == (Claim("one", 1), "laid")
        assert len(list((tmp_path / "server").glob("*/.*.laid"))) == 1
        asked.append(args)
        answer = answers[len(asked) - 1]
        if isinstance(answer, dict):
            return answer
        raise NotAnswered("no", False, str(answer))

    assert not await cache.hand_over(digest, source, Claim("one", 1)), "there is nobody to ask"
    cache.ask = ask
    if handed is None:
        with pytest.raises(NotAnswered):
            await cache.hand_over(digest, source, Claim("one", 1))
    else:
        assert await cache.hand_over(digest, source, Claim("one", 1)) is handed
    assert len(asked) == len(answers)
    assert asked[0] == asked[-1], "the same words each time"
    assert (asked[0]["digest"], asked[0]["size"], asked[0]["hashed"]) == (digest, 7, True)
    assert source.read_bytes() == b"content"
    assert list((tmp_path / "server").glob("*/.*")) == []


async def test_nothing_is_handed_over_to_a_server_that_does_not_answer_that(tmp_path: Path) -> None:
    cache, blobs, nearby = beside(tmp_path)
    told = blobs.write_probe()
    del told["asked"]
    nearby.prove(told)

    async def ask(claim: Claim, kind: str, args: dict[str, object]) -> dict[str, object]:
        raise AssertionError("it is not asked")

    cache.ask = ask
    source = tmp_path / "saved"
    source.write_bytes(b"content")
    assert not await cache.hand_over(digest_of(b"content"), source, Claim("one", 1))
