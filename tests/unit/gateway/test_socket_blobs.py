"""Files of values beside the session: taken from where a worker laid them, told of to the server's own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from farhand.blobs import digest_of
from farhand.blobs.arriving import Streamed
from farhand.errors import Conflict, DigestMismatch
from farhand.model import LOCAL_WORKER, Job
from farhand_worker import protocol
from farhand_worker.nearby import look
from tests.unit.engine.records import a_hello
from tests.unit.gateway.gateways import FakeWebSocket, Gateway

pytestmark = pytest.mark.anyio

CONTENT = b"a table of the weather"
DIGEST = digest_of(CONTENT)
TOKEN = "0123456789abcdef" * 2
LAID = {"digest": DIGEST, "token": TOKEN, "size": len(CONTENT)}


def place(gateway: Gateway) -> Path:
    """Where the file is laid."""
    gateway.blobs.write_probe()
    name = DIGEST.removeprefix("sha256:")
    return gateway.home / "blobs" / name[:2] / f".{name}.{TOKEN}.laid"


async def asked(websocket: FakeWebSocket, job: Job, args: dict[str, Any]) -> protocol.Reply:
    websocket.say(protocol.Request("agent-1", job.id, job.lease or 0, "laid", args))
    return await websocket.hear(protocol.Reply)


async def test_a_laid_file_is_taken_on_request_and_once_more(gateway: Gateway) -> None:
    websocket, job = await gateway.with_job()
    place(gateway).write_bytes(CONTENT)
    for _ in range(2):
        assert (await asked(websocket, job, LAID)).body == {"settled": True}
    assert gateway.blobs.path(DIGEST).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "changed", "code"),
    [
        (b"another table of weather", {"size": 24}, "digest_mismatch"),
        (CONTENT, {"size": 1}, "digest_mismatch"),
        (None, {}, "not_found"),
        (CONTENT, {"token": "../../etc/passwd"}, "usage"),
        (CONTENT, {"digest": "sha256:../x"}, "usage"),
        (CONTENT, {"size": "many"}, None),
        (b"another table of weather", {"size": 24, "hashed": True}, "digest_mismatch"),
    ],
)
async def test_what_is_not_what_was_said_is_refused_by_its_code(
    gateway: Gateway, content: bytes | None, changed: dict[str, Any], code: str | None
) -> None:
    websocket, job = await gateway.with_job()
    if content is not None:
        place(gateway).write_bytes(content)
    reply = await asked(websocket, job, LAID | changed)
    assert (reply.body, reply.code) == (None, code)
    assert reply.error
    assert not gateway.blobs.has(DIGEST)


async def test_only_who_holds_the_job_may_have_a_file_taken(gateway: Gateway) -> None:
    websocket, job = await gateway.with_job()
    place(gateway).write_bytes(CONTENT)
    stale = protocol.Request("agent-1", job.id, (job.lease or 0) + 1, "laid", LAID)
    websocket.say(stale)
    assert (await websocket.hear(protocol.Fenced)).lease == stale.lease
    assert not gateway.blobs.has(DIGEST)


async def test_the_servers_own_worker_may_lay_a_file_by_a_second_name_and_no_other(
    gateway: Gateway, tmp_path: Path
) -> None:
    for worker in ("box", LOCAL_WORKER):
        saved = tmp_path / worker
        saved.write_bytes(CONTENT)
        os.link(saved, place(gateway))
        if worker == LOCAL_WORKER:
            assert await gateway.needs.laid(worker, LAID) == {"settled": True}
        else:
            with pytest.raises(Conflict, match="not a plain file"):
                await gateway.needs.laid(worker, LAID)
    assert gateway.blobs.path(DIGEST).samefile(saved)


async def test_what_its_engine_has_hashed_a_moment_ago_is_not_read_again_and_else_it_is(
    gateway: Gateway,
) -> None:
    place(gateway).write_bytes(CONTENT[::-1])
    with pytest.raises(DigestMismatch):
        await gateway.needs.laid(LOCAL_WORKER, LAID)
    place(gateway).write_bytes(CONTENT[::-1])
    with pytest.raises(DigestMismatch, match="has 22 bytes"):
        await gateway.needs.laid(LOCAL_WORKER, LAID | {"hashed": True, "size": 21})
    place(gateway).write_bytes(CONTENT[::-1])
    assert await gateway.needs.laid(LOCAL_WORKER, LAID | {"hashed": True}) == {"settled": True}


@pytest.mark.parametrize("worker", ["box", LOCAL_WORKER])
async def test_beside_the_server_an_outcome_tells_what_its_file_was_like_when_it_was_verified(
    gateway: Gateway, worker: str
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield CONTENT

    await gateway.blobs.write(Streamed(pieces()), DIGEST)
    websocket = gateway.dial(worker)
    websocket.say(a_hello(name=worker))
    await websocket.hear(protocol.Welcome)
    await gateway.answered(websocket)
    link = gateway.world.fleet.member(worker).link
    assert link is not None
    for digest in (DIGEST, "sha256:" + "0" * 64):
        value = {"enc": "pickle", "digest": digest, "size": len(CONTENT)}
        link.send(protocol.Outcome("job", 1, "key", {"state": "completed", "value": value}))
        seen = (await websocket.hear(protocol.Outcome)).seen
        known = digest == DIGEST and worker == LOCAL_WORKER
        assert seen == (list(look(gateway.blobs.path(DIGEST))) if known else None)
    link.send(protocol.Outcome("job", 1, "key", {"state": "failed", "value": None}))
    assert (await websocket.hear(protocol.Outcome)).seen is None
