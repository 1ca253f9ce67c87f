"""A service as a node of a flow that was put: kept while the flow is there, its address given to nodes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deployment import Deployment, deployed, free_port
from tests.harness.processes import send
from tests.harness.waiting import eventually

ASK = """
import urllib.request

def process(llm_url):
    with urllib.request.urlopen(llm_url + "/") as answer:
        return [llm_url, answer.status]
"""

ASK_LATER = """
import os
import pathlib
import urllib.request

def process(llm_url, gate):
    place = pathlib.Path(gate)
    (place / "pid").write_text(str(os.getpid()))
    while not (place / "go").exists():
        pass
    with urllib.request.urlopen(llm_url + "/") as answer:
        return [llm_url, answer.status]
"""


def document(port: int, **more: Any) -> dict[str, Any]:
    llm = {
        "id": "llm",
        "type": "service",
        "command": ["python", "-m", "http.server", "{port}", "--bind", "127.0.0.1"],
        "port": port,
        "device": "near",
        "health": "/",
        "env": {"PYTHONUNBUFFERED": "1"},
        "provides": ["llm_url"],
        **more,
    }
    ask = {"id": "ask", "type": "python", "source": ASK, "requires": ["llm_url"], "provides": ["answer"]}
    return {"nodes": [ask, llm], "outputs": ["answer"]}


@pytest.fixture
def deployment(tmp_path: Path) -> Any:
    with deployed(tmp_path) as running:
        yield running


def state(deployment: Deployment) -> str:
    return deployment.get("/services/llm")["state"]


def test_a_node_waits_for_a_service_that_comes_and_goes_with_its_flow(deployment: Deployment) -> None:
    first, second = free_port(), free_port()
    deployment.put("/flows/asking", document(first))
    run = deployment.start_run("asking")
    eventually(lambda: any("waits until the service 'llm'" in line for line in deployment.log_lines(run)))
    assert deployment.run(run)["state"] == "running"
    deployment.worker("box", "near", parallel=1)
    done = deployment.wait_for_run(run, "completed")
    assert done["result"] == {"answer": [f"http://127.0.0.1:{first}", 200]}
    deployment.put("/flows/asking", document(second))
    eventually(lambda: deployment.get("/services/llm")["url"].endswith(str(second)), 30, "it has moved")
    again = deployment.wait_for_run(deployment.start_run("asking"), "completed")
    assert again["result"] == {"answer": [f"http://127.0.0.1:{second}", 200]}
    deployment.client.delete("/flows/asking").raise_for_status()
    eventually(lambda: state(deployment) == "stopped", 30, "it ends with its flow")
    assert deployment.get("/services/llm")["url"] == ""


def test_a_run_that_begins_again_asks_where_the_service_is_now(deployment: Deployment) -> None:
    deployment.worker("box", "near", parallel=1)
    given = document(free_port())
    given["nodes"][0]["source"] = ASK_LATER
    given["nodes"][0]["requires"] = ["llm_url", "gate"]
    given["inputs"] = ["gate"]
    deployment.put("/flows/asking", given)
    run = deployment.start_run("asking", gate=str(deployment.directory))
    pid = eventually(lambda: _read(deployment.directory / "pid"), 30, "its node has begun")
    moved = free_port()
    given["nodes"][1]["port"] = moved
    deployment.put("/flows/asking", given)
    eventually(lambda: deployment.get("/services/llm")["url"].endswith(str(moved)), 30, "it has moved")
    (deployment.directory / "go").touch()
    send(pid, signal.SIGKILL)
    done = deployment.wait_for_run(run, "completed")
    assert done["result"] == {"answer": [f"http://127.0.0.1:{moved}", 200]}
    assert len(deployment.attempts(run)) == 2


def _read(path: Path) -> int:
    return int(path.read_text() or 0) if path.exists() else 0
