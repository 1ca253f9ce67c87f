"""3.25: what a broken or hostile worker says over a real socket is refused by name, and harms nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deployment import FAST, Deployment, WorkerProgram, deployed
from tests.harness.peers import COMPLETED, STARTED, Peer, dialled
from tests.harness.waiting import eventually
from tests.harness.witnesses import words

pytestmark = pytest.mark.fault("3.25")

VIOLATION, NOT_UTF_8, TOO_BIG = 1002, 1007, 1009
HUNDRED_MB = 100_000_000
PATIENT = replace(FAST, heartbeat_s=20, lease_s=90, handoff_s=30)
"""A peer that never beats is not missed, however slow this machine is now."""

BLOB = "sha256:" + "0" * 64


@dataclass
class Scene:
    """A server, a good worker in the middle of a run, and the token of one that is none."""

    server: Deployment
    steady: WorkerProgram
    run: str
    token: str

    @property
    def held(self) -> tuple[str, int]:
        """Job and lease of the good worker's run."""
        workers = self.server.get("/workers/resources")["workers"]
        (held,) = next(worker["held"] for worker in workers if worker["name"] == "steady")
        (attempt,) = self.server.attempts(self.run)
        return held["job"], attempt["lease"]

    def dial(self) -> Any:
        """A connection of the hostile worker."""
        return dialled(self.server.url, self.token, "hostile")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("hostile")
    with deployed(directory, times=PATIENT) as server:
        steady = server.worker("steady")
        gate, witnessed = directory / "gate", directory / "witness"
        run = server.start_run("waiting_there", path=str(witnessed), gate=str(gate))
        server.wait_for_run(run, "running")
        yield Scene(server, steady, run, server.token("hostile", ["late"]))
        gate.touch()
        ended = server.wait_for_run(run, "completed")
        assert (ended["result"], ended["worker"], ended["attempt"]) == ("done", "steady", 1)
        assert words(witnessed) == {"begin": 1, "end": 1}
        assert steady.text().count("attached to") == 1, "the good worker's session never ended"


def greeted(peer: Peer) -> None:
    """Attach as a worker would."""
    peer.greet()


def not_greeted(_: Peer) -> None:
    """Say nothing first."""


FRAMES = {
    "text that is no JSON": (greeted, "{]", "not a message of this protocol"),
    "JSON that is no message": (greeted, "[[]]", "not a message of this protocol"),
    "a message of no known type": (greeted, '{"type": "sing"}', "not a message of this protocol"),
    "a binary frame": (greeted, bytes(range(256)), "a binary frame"),
    "a field of another type": (greeted, '{"type": "heartbeat", "n": "x"}', "not a heartbeat"),
    "a heartbeat before the hello": (not_greeted, '{"type": "heartbeat", "n": 1}', "begins with"),
    "what only a server says": (greeted, '{"type": "probe"}', "may not come from a worker"),
}  # fmt: skip


@pytest.mark.parametrize("case", FRAMES)
def test_a_frame_that_breaks_the_protocol_closes_that_session_by_name(scene: Scene, case: str) -> None:
    begin, frame, reason = FRAMES[case]
    before = scene.server.server.text().count("worker hostile broke the protocol")
    with scene.dial() as peer:
        begin(peer)
        peer.say_raw(frame)
        closed, why = peer.closed()
    assert closed == VIOLATION
    assert why.startswith("protocol_violation: ")
    assert reason in why
    told = eventually(lambda: scene.server.server.text().count("worker hostile broke the protocol") - before)
    assert told == 1, "once in the log"


@pytest.mark.parametrize("begin", [not_greeted, greeted])
def test_a_frame_of_100_mb_is_refused_at_its_first_bytes(scene: Scene, begin: Callable[[Peer], None]) -> None:
    with scene.dial() as peer:
        begin(peer)
        peer.announce(HUNDRED_MB)
        code, why = peer.closed()
        assert not peer.takes(bytes(HUNDRED_MB)), "the connection takes no more of it"
    assert code == TOO_BIG
    assert "exceeds limit" in why
    eventually(lambda: "broke the protocol: a frame of more than" in scene.server.server.text())


def test_a_text_that_is_not_utf_8_closes_the_session_by_name(scene: Scene) -> None:
    with scene.dial() as peer:
        peer.greet()
        peer.say_raw(b"\xff\xfe", text=True)
        code, _ = peer.closed()
    assert code == NOT_UTF_8
    eventually(
        lambda: "worker hostile broke the protocol: a text that is not UTF-8" in scene.server.server.text()
    )


def test_a_second_hello_closes_the_session_by_name(scene: Scene) -> None:
    with scene.dial() as peer:
        peer.greet()
        peer.say(**peer.hello())
        code, why = peer.closed()
    assert (code, why) == (VIOLATION, "protocol_violation: hello may not come from a worker now")


def test_a_result_for_a_job_never_assigned_is_fenced_by_name_and_the_session_goes_on(scene: Scene) -> None:
    job, lease = scene.held
    with scene.dial() as peer:
        peer.greet()
        for named, number in [("no-such-job", 1), (job, lease), (job, lease + 1), (job, -1), ("import-0", 1)]:
            peer.report(named, number, COMPLETED, first=100)
            assert peer.hear("fenced")["code"] == "stale_lease"
            peer.say(type="request", id="r", job=named, lease=number, kind="checkpoints", args={"after": 0})
            assert peer.hear("fenced")["code"] == "stale_lease"
        peer.say(type="heartbeat", n=1)
        peer.hear("ack", n=1)
        assert scene.server.run(scene.run)["state"] == "running"
        assert all(
            "forged" not in json.dumps(task) for task in scene.server.items(f"/runs/{scene.run}/tasks")
        )


def test_a_forged_hello_resumes_nothing_of_anothers(scene: Scene) -> None:
    job, lease = scene.held
    with scene.dial() as peer:
        peer.say(**peer.hello(held=[{"job": job, "lease": lease, "started_at": 1.0, "rode_outage": True}]))
        (resume,) = peer.hear("welcome")["resume"]
    assert resume["fenced"]
    (attempt,) = scene.server.attempts(scene.run)
    assert not attempt["overlap_possible"]


def test_a_body_under_a_forged_claim_is_refused_by_name(scene: Scene) -> None:
    job, lease = scene.held
    headers = {"Authorization": f"Bearer {scene.token}", "Farhand-Job": job, "Farhand-Lease": str(lease)}
    for method in ("GET", "PUT"):
        answer = scene.server.client.request(method, f"/artifacts/{BLOB}", headers=headers, content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (403, "not_your_artifact")


def test_events_out_of_order_close_the_session_and_a_forged_lease_is_fenced(
    scene: Scene, tmp_path: Path
) -> None:
    run = scene.server.start_run("waiting_for_a_machine", path=str(tmp_path / "witness"), number=1)
    with scene.dial() as peer:
        peer.greet()
        check = peer.hear("assign", kind="import")
        peer.report(check["job"], check["lease"], STARTED, COMPLETED)
        call = peer.hear("assign", kind="call")
        peer.report(call["job"], call["lease"] + 1, STARTED, COMPLETED)
        assert peer.hear("fenced", job=call["job"])["code"] == "stale_lease"
        peer.report(call["job"], call["lease"], STARTED)
        peer.hear("ack", job=call["job"], seq=1)
        peer.report(call["job"], call["lease"], COMPLETED, first=3)
        code, why = peer.closed()
    assert (code, why) == (VIOLATION, f"protocol_violation: events 2 to 2 of job {call['job']} are missing")
    scene.server.post(f"/runs/{run}/cancel")
    scene.server.wait_for_run(run, "cancelled")
