"""4.14 to 4.19 and 4.21: services whose port is taken, that end, hang, stay, lose their worker or weights."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from farhand.lifecycle import STARTS_MAX
from tests.harness.deployment import FAST, Deployment, deployed
from tests.harness.kept import Kept
from tests.harness.processes import alive, descendants, send
from tests.harness.waiting import eventually, throughout

ODD = "\"'\n$(touch gone) `id` ; & | " + "x" * 300


@pytest.fixture(scope="module")
def taken() -> Iterator[socket.socket]:
    """Somebody else's socket."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, taken: socket.socket) -> Iterator[Kept]:
    """A server and two workers with everything that can be wrong with a service, for the whole module."""
    kept = Kept(tmp_path_factory.mktemp("kept"))
    kept.add("web", device="near")
    kept.add("hangs", "hangs", device="near")
    kept.add("exits", "exits", device="near")
    kept.add("stubborn", "stubborn", stop_timeout=0.3)
    kept.add("taken", port=taken.getsockname()[1])
    kept.add("weightless", weights="sha256:" + "0" * 64, env={"W": "{weights}"})
    kept.add("moves", device="far")
    kept.add("odd", ODD, env={"KEPT_KEY": ODD})
    patient = replace(FAST, lease_s=8.0)
    with deployed(kept.directory, project=kept.project, parallel=1, times=patient) as deployment:
        kept.deployment = deployment
        deployment.worker("box", "near", parallel=1)
        yield kept


def of(kept: Kept) -> Deployment:
    assert kept.deployment is not None
    return kept.deployment


def test_a_task_uses_a_service_on_a_worker_which_takes_no_slot(kept: Kept) -> None:
    run = of(kept).wait_for_run(of(kept).start_run("use", name="web"), "completed")
    assert run["result"][0] == f"http://127.0.0.1:{kept.ports['web']}"
    service = kept.show("web")
    assert (service["state"], service["worker"]) == ("healthy", "box")
    box = of(kept).get("/workers/box")
    assert box["message"] == "is there: 1 of 1 slots free"


def test_a_killed_process_is_started_again_and_says_how_it_ended(kept: Kept) -> None:
    first = kept.pid("web")
    send(first, signal.SIGKILL)
    assert kept.pid("web", but=first)
    assert any("the service was ended by signal 9" in line for line in kept.lines("web"))


@pytest.mark.fault("4.14")
def test_a_port_that_is_taken_ends_in_down_with_the_last_line_and_one_order_tries_again(
    kept: Kept, taken: socket.socket
) -> None:
    """B037: so many starts and no more, and what the last of them wrote is said."""
    down = kept.becomes("taken", "down", "never_healthy")
    assert "in use" in down["message"]
    assert down["starts"] == STARTS_MAX
    taken.close()
    of(kept).post("/services/taken/start")
    kept.becomes("taken", "healthy")


@pytest.mark.fault("4.15")
def test_one_that_exits_at_once_is_started_three_times_and_says_its_last_line(kept: Kept) -> None:
    down = kept.becomes("exits", "down", "never_healthy")
    sentence = "the service exited with code 3: no such model: " + "x" * 285
    assert down["message"].endswith(sentence)
    assert "about to fail" in down["tail"]
    assert down["starts"] == STARTS_MAX
    assert sentence in kept.lines("exits")


@pytest.mark.fault("4.16")
def test_one_that_hangs_after_it_was_healthy_is_degraded_and_left_alone(kept: Kept) -> None:
    """B039: an answer that is too slow is the end of no process, and costs no start."""
    pid = kept.pid("hangs")
    kept.flag("hangs").touch()
    found = kept.becomes("hangs", "degraded", "health_timeout")
    assert found["message"] == "/health did not answer within 0.5 s"
    assert found["url"] == ""
    throughout(lambda: alive(pid), 1.0, "it is not killed")
    kept.flag("hangs").unlink()
    assert kept.pid("hangs") == pid


@pytest.mark.fault("4.17")
def test_one_that_ignores_sigterm_is_gone_with_all_it_started(kept: Kept) -> None:
    pid = kept.pid("stubborn")
    tree = [pid, *descendants(pid)]
    assert len(tree) == 2
    of(kept).post("/services/stubborn/stop")
    stopped = kept.becomes("stubborn", "stopped")
    assert stopped["message"] == "the service was stopped"
    assert not any(map(alive, tree))
    assert not kept.listens("stubborn")


@pytest.mark.fault("4.18")
def test_a_lost_worker_costs_a_service_its_place_and_no_task_gets_its_old_address(kept: Kept) -> None:
    waiting = kept.becomes("moves", "degraded", "no_worker")
    assert "label far" in waiting["message"]
    first = of(kept).worker("far1", "far", parallel=1)
    pid = kept.pid("moves")
    second = of(kept).worker("far2", "far", parallel=1)
    first.kill()
    run = of(kept).start_run("use", name="moves", timeout=90)
    eventually(lambda: kept.show("moves")["state"] == "degraded", what="it is not said to be healthy")
    found = kept.becomes("moves", "healthy", within_s=60)
    assert found["worker"] == "far2"
    assert not alive(pid)
    answer = of(kept).wait_for_run(run, "completed", within_s=90)["result"][1]
    assert answer.split()[0] != str(pid)
    second.send(signal.SIGTERM)
    assert second.wait() == 0, "a worker that drains lets go of its services"
    assert not kept.listens("moves")


@pytest.mark.fault("4.19")
def test_weights_that_are_not_there_are_named(kept: Kept) -> None:
    down = kept.becomes("weightless", "down", "never_healthy")
    assert "could not be started" in down["message"]
    assert "0000" in down["message"]


@pytest.mark.fault("4.21")
def test_words_and_values_reach_a_service_as_they_were_written(kept: Kept) -> None:
    run = of(kept).wait_for_run(of(kept).start_run("use", name="odd"), "completed")
    assert run["result"][1].endswith(ODD)
    [said] = [line for line in kept.lines("odd") if line.startswith("listening")]
    assert repr(ODD) in said


def test_a_task_does_not_wait_for_a_service_that_is_down(kept: Kept) -> None:
    kept.becomes("exits", "down")
    run = of(kept).wait_for_run(of(kept).start_run("use", name="exits"), "failed")
    assert "the service 'exits' is down" in run["message"]


def test_a_killed_server_finds_its_services_as_it_left_them(kept: Kept) -> None:
    pid = kept.pid("web")
    of(kept).server.kill()
    of(kept).restart()
    assert kept.pid("web") == pid, kept.lines("web")[-5:]


def test_a_service_that_its_flow_no_longer_has_is_stopped(kept: Kept) -> None:
    pid = kept.pid("web")
    kept.write([])
    kept.becomes("web", "stopped")
    assert not alive(pid)
    assert not kept.listens("web")
    eventually(lambda: of(kept).items("/services") == [], what="none of them is left")
