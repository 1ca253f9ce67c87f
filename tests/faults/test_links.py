"""1.6, 1.7 and 1.8: the link between a worker and its server is cut, or loses one message."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deployment import FAST, Deployment
from tests.harness.proxy import TO_SERVER, TO_WORKER, Proxy
from tests.harness.waiting import eventually
from tests.harness.witnesses import words


@pytest.fixture
def proxy(standing: Deployment) -> Iterator[Proxy]:
    """The link of the test's worker."""
    link = Proxy(standing.port)
    yield link
    link.close()


@pytest.mark.fault("1.6")
def test_the_same_attempt_goes_on_when_the_link_is_cut_for_half_a_lease(
    standing: Deployment, proxy: Proxy, tmp_path: Path
) -> None:
    standing.worker("half", url=proxy.url)
    witness = tmp_path / "witness"
    run_id = standing.start_run("ticking_there", path=str(witness), seconds=3)
    eventually(lambda: words(witness)["tick3"], what="the run ticks")
    proxy.cut()
    time.sleep(FAST.lease_s / 2)
    proxy.heal()
    run = standing.wait_for_run(run_id, "completed")
    assert len(standing.attempts(run_id)) == 1
    assert words(witness)["begin"] == 1
    assert standing.log_lines(run_id) == [f"tick {n}" for n in range(1, run["result"] + 1)]


@pytest.mark.fault("1.6")
def test_the_run_goes_on_from_its_last_checkpoint_when_the_link_is_cut_for_two_leases(
    standing: Deployment, proxy: Proxy, tmp_path: Path
) -> None:
    worker = standing.worker("two", url=proxy.url)
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    run_id = standing.start_run("checkpointed_there", path=str(witness), gate=str(gate))
    eventually(lambda: words(witness)["step2"], what="two steps are done")
    eventually(lambda: len(standing.items(f"/runs/{run_id}/tasks")) >= 2, what="both are recorded")
    engines = worker.engines()
    proxy.cut()
    time.sleep(2 * FAST.lease_s)
    gate.touch()
    proxy.heal()
    assert standing.wait_for_run(run_id, "completed")["result"] == [1, 2, 3]
    assert words(witness) == {"step1": 1, "step2": 1, "step3": 1}
    assert [a["outcome"] for a in standing.attempts(run_id)] == ["lost", "completed"]
    assert not set(engines) & set(worker.engines()), "the fenced engine lives"


@pytest.mark.fault("1.7")
@pytest.mark.parametrize(
    ("direction", "kind"), [(TO_WORKER, "assign"), (TO_SERVER, "accepted")], ids=["assign", "accepted"]
)
def test_a_hand_off_of_which_a_message_is_lost_runs_once(
    standing: Deployment, proxy: Proxy, tmp_path: Path, direction: str, kind: str
) -> None:
    """FAULTS B018: a hand-off in flight is neither lost nor done twice."""
    standing.worker(f"without-{kind}", url=proxy.url)
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    proxy.swallow(direction, lambda message: kind in _kinds(message))
    run_id = standing.start_run("waiting_there", path=str(witness), gate=str(gate))
    eventually(lambda: proxy.swallowed, what="it is lost")
    gate.touch()
    assert standing.wait_for_run(run_id, "completed")["result"] == "done"
    assert [kind in _kinds(message) for message in proxy.swallowed] == [True]
    assert words(witness) == {"begin": 1, "end": 1}


@pytest.mark.fault("1.8")
def test_a_result_whose_acknowledgement_is_lost_is_recorded_once(
    standing: Deployment, proxy: Proxy, tmp_path: Path
) -> None:
    worker = standing.worker("unanswered", url=proxy.url)
    witness = tmp_path / "witness"
    standing.wait_for_run(standing.start_run("ticking_there", path=str(witness), seconds=0.0))
    before = len(proxy.seen)
    proxy.swallow(
        TO_WORKER, lambda message: _acknowledges_events(message) and _result_is_sent(proxy, before), 1000
    )
    run_id = standing.start_run("ticking_there", path=str(witness), seconds=0.5)
    run = standing.wait_for_run(run_id, "completed")
    spools = lambda: list((worker.state_dir / "spool").glob("*.engine"))  # noqa: E731
    assert spools(), "the agent dropped a spool that was not acknowledged"
    proxy.deliver_all()
    proxy.reset()
    eventually(lambda: not spools(), what="the agent has its acknowledgement")
    assert standing.run(run_id)["ended_at"] == run["ended_at"]
    assert len(standing.attempts(run_id)) == 1
    assert standing.log_lines(run_id) == [f"tick {n}" for n in range(1, run["result"] + 1)]
    kinds = [e["kind"] for e in standing.items(f"/runs/{run_id}/events")]
    assert kinds.count("run.completed") == 1


def _acknowledges_events(message: dict[str, Any]) -> bool:
    return any(each["type"] == "ack" and each.get("job") is not None for each in _parts(message))


def _result_is_sent(proxy: Proxy, before: int) -> bool:
    sent = (message for direction, message in proxy.seen[before:] if direction == TO_SERVER)
    parts = (each for message in sent for each in _parts(message))
    return any(event[0] == "result" for each in parts for event in each.get("events", ()))


def _kinds(message: dict[str, Any]) -> list[str]:
    return [each["type"] for each in _parts(message)]


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a frame."""
    return message["messages"] if message["type"] == "several" else [message]
