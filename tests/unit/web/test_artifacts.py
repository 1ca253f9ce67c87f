"""Blobs over HTTP: who may read and write them, and how they come in parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from farhand.blobs import digest_of

from .fakes import ADMIN, WORKER, FakeServices, caller, problem_of

LEASE = {"Farhand-Job": "0job1", "Farhand-Lease": "7"}
CONTENT = b"0123456789"
PATH = f"/api/v1/artifacts/{digest_of(CONTENT)}"


@pytest.fixture
def worker(app: Any) -> TestClient:
    return caller(app, WORKER)


HOLDING = SimpleNamespace(lease=7, job=SimpleNamespace(args={}, bundle="", fingerprint=""))


@pytest.fixture
def held(services: FakeServices) -> FakeServices:
    """The worker holds a job."""
    services.leases.current.add(("0job1", 7))
    services.fleet.holders["0job1"] = (services.workers.items[0], HOLDING)
    return services


def test_what_the_job_it_holds_begins_with_is_given_without_looking_further(
    worker: TestClient, held: FakeServices
) -> None:
    digests = [held.blobs.put_bytes(content) for content in (b"args", b"bundle", b"manifest")]
    needs = SimpleNamespace(
        args={"enc": "pickle", "digest": digests[0]}, bundle=digests[1], fingerprint=digests[2]
    )
    for lease, status in ((7, 200), (8, 403)):
        held.fleet.holders["0job1"] = (held.workers.items[0], SimpleNamespace(lease=lease, job=needs))
        for digest in digests:
            assert worker.get(f"/api/v1/artifacts/{digest}", headers=LEASE).status_code == status


def part(client: TestClient, text: str, content: bytes = b"") -> Any:
    return client.put(PATH, content=content, headers={**LEASE, "Content-Range": text})


def test_a_worker_writes_only_under_a_live_lease(worker: TestClient, services: FakeServices) -> None:
    assert problem_of(worker.put(PATH, content=CONTENT)) == (403, "not_your_artifact")
    assert problem_of(worker.put(PATH, content=CONTENT, headers=LEASE)) == (403, "not_your_artifact")
    services.leases.current.add(("0job1", 7))
    services.fleet.holders["0job1"] = (services.workers.items[0], HOLDING)
    assert worker.put(PATH, content=CONTENT, headers=LEASE).status_code == 201
    services.fleet.holders["0job1"] = (replace(services.workers.items[0], name="another"), HOLDING)
    assert problem_of(worker.put(PATH, content=CONTENT, headers=LEASE)) == (403, "not_your_artifact")


def test_a_worker_reads_only_what_its_jobs_need(worker: TestClient, held: FakeServices) -> None:
    digest = held.blobs.put_bytes(CONTENT)
    assert problem_of(worker.get(PATH)) == (403, "not_your_artifact")
    assert problem_of(worker.get(PATH, headers=LEASE)) == (403, "not_your_artifact")
    assert worker.head(PATH, headers=LEASE).status_code == 200, "whether it is here may be asked"
    assert worker.head(PATH).status_code == 403
    held.leases.readable.add(digest)
    assert worker.get(PATH, headers=LEASE).content == CONTENT
    held.fleet.holders["0job1"] = (replace(held.workers.items[0], name="another"), HOLDING)
    assert problem_of(worker.get(PATH, headers=LEASE)) == (403, "not_your_artifact")


def test_a_body_comes_in_parts_and_goes_on_where_it_ended(worker: TestClient, held: FakeServices) -> None:
    assert part(worker, "bytes */10").json() == {"digest": digest_of(CONTENT), "received": 0}
    first = part(worker, "bytes 0-3/10", CONTENT[:4])
    assert (first.status_code, first.json()["received"]) == (202, 4)
    assert not held.blobs.has(digest_of(CONTENT)), "nothing is there before all of it is"
    again = part(worker, "bytes 0-3/10", CONTENT[:4])
    assert problem_of(again) == (409, "conflict")
    assert again.json()["details"] == {"received": 4}
    assert part(worker, "bytes */10").json()["received"] == 4
    last = part(worker, "bytes 4-9/10", CONTENT[4:])
    assert (last.status_code, last.json()) == (201, {"digest": digest_of(CONTENT), "size": 10})
    assert held.blobs.path(digest_of(CONTENT)).read_bytes() == CONTENT
    assert part(worker, "bytes */10").status_code == 200


def test_parts_of_other_bytes_are_refused_and_leave_nothing(worker: TestClient, held: FakeServices) -> None:
    part(worker, "bytes 0-3/10", b"wron")
    assert problem_of(part(worker, "bytes 4-9/10", CONTENT[4:])) == (422, "digest_mismatch")
    assert part(worker, "bytes */10").json()["received"] == 0


def test_what_one_sends_wrongly_spoils_nothing_of_another(app: Any, held: FakeServices) -> None:
    part(caller(app, WORKER), "bytes 0-3/10", b"wron")
    admin = caller(app, ADMIN)
    assert part(admin, "bytes 0-3/10", CONTENT[:4]).status_code == 202
    assert part(admin, "bytes 4-9/10", CONTENT[4:]).status_code == 201


@pytest.mark.parametrize(
    "text", ["bytes", "bytes 5-2/10", "bytes 0-10/10", "0-3/10", "bytes 0-3/*", "bytes -3/10", "bytes 0-3"]
)
def test_a_content_range_that_is_none_is_refused(worker: TestClient, held: FakeServices, text: str) -> None:
    assert problem_of(part(worker, text, b"0123")) == (400, "usage")


def lay(services: FakeServices, content: bytes, token: str = "0" * 32) -> str:
    """Lay a file in the server's directory; returns what the header says of it."""
    directory = Path(services.blobs.write_probe()["directory"])
    name = digest_of(CONTENT).removeprefix("sha256:")
    (directory / name[:2] / f".{name}.{token}.laid").write_bytes(content)
    return f"{token} {len(content)}"


def take(client: TestClient, text: str, headers: dict[str, str] = LEASE) -> Any:
    return client.put(PATH, headers={**headers, "Farhand-Laid": text})


def test_a_laid_file_is_taken_under_a_live_lease_alone(
    worker: TestClient, services: FakeServices, held: FakeServices
) -> None:
    text = lay(services, CONTENT)
    assert problem_of(take(worker, text, {})) == (403, "not_your_artifact")
    assert problem_of(take(worker, text, {**LEASE, "Farhand-Lease": "6"})) == (403, "not_your_artifact")
    assert problem_of(take(worker, text, {**LEASE, "Farhand-Job": "0job2"})) == (403, "not_your_artifact")
    assert not held.blobs.has(digest_of(CONTENT))
    taken = take(worker, text)
    assert (taken.status_code, taken.json()) == (201, {"digest": digest_of(CONTENT), "size": len(CONTENT)})
    assert take(worker, text).status_code == 200, "asked again, it is here"


def test_a_laid_file_of_other_content_is_refused(worker: TestClient, held: FakeServices) -> None:
    assert problem_of(take(worker, lay(held, b"wrong"))) == (422, "digest_mismatch")
    assert problem_of(take(worker, lay(held, CONTENT).replace("10", "11"))) == (422, "digest_mismatch")
    assert problem_of(take(worker, f"{'1' * 32} 10")) == (404, "not_found")


@pytest.mark.parametrize("text", ["", "0" * 32, f"{'0' * 32} -1", f"../{'0' * 29} 10", f"{'G' * 32} 10"])
def test_what_names_no_laid_file_is_refused(worker: TestClient, held: FakeServices, text: str) -> None:
    assert problem_of(take(worker, text)) == (400, "usage")
