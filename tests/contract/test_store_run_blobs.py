"""What a worker may read: the code of its job, and the blobs that the records of its run name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.model import Job, Run
from farhand_worker import protocol

pytestmark = pytest.mark.anyio


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


def content(letter: str) -> dict[str, object]:
    return {"enc": "pickle", "digest": digest(letter), "size": 100_000}


async def test_what_records_of_the_run_name_may_be_read_under_the_current_lease_alone(story):
    leased = await story.running()
    await story.report(
        leased,
        story.checkpoint("a", value=content("1")),
        replace(story.call("b"), args=content("2")),
        protocol.Artifact("model", digest("3"), 5, story.now),
    )
    job, lease = leased.job.id, leased.job.lease or 0
    readable = story.store.run_blobs.may_read
    for letter in "123":
        assert await readable(job, lease, digest(letter))
        assert await readable(job, lease + 1, digest(letter)) is False
    assert await readable(job, lease, "sha256:b"), "the bundle of the job"
    assert await readable(job, lease, digest("4")) is False
    other = await story.running()
    assert await readable(other.job.id, other.job.lease or 0, digest("1")) is False
    await story.report(leased, story.result())
    assert await readable(job, lease, digest("1")) is False, "the lease has ended"


async def test_a_reference_to_a_saved_file_makes_it_readable_wherever_it_stands(story):
    text = f'{{"$artifact":{{"name":"m","digest":"{digest("5")}","size":1}}}}'
    leased = await story.running()
    await story.report(leased, story.checkpoint("a", value={"enc": "json", "text": text}))
    assert await story.store.run_blobs.may_read(leased.job.id, leased.job.lease or 0, digest("5"))


async def test_parameters_name_blobs_and_a_retry_reads_what_its_original_may(story):
    original = await story.running()
    await story.report(original, story.checkpoint("a", value=content("6")), story.result())
    run = await story.store.runs.get(original.run.id)
    again = Run(
        "run9999", "etl", "queued", "new", "", f'{{"a":"{digest("7")}"}}', story.now,
        bundle="sha256:b", retry_of=run.id,
    )  # fmt: skip
    ended = await story.job(original.job.id)
    job = Job(
        "run9999-job", again.id, "run", "queued", "etl", "m:f", {"enc": "json", "text": "{}"}, "sha256:b",
        ended.ask, ended.settings, story.now, story.now,
    )  # fmt: skip
    await story.store.runs.create(again, job)
    leased = await story.lease(job)
    for letter in "67":
        assert await story.store.run_blobs.may_read(job.id, leased.job.lease or 0, digest(letter))
