"""The console of a real server, while a real run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.deployment import deployed

from .conftest import OpenPage

FLOWS = """
import time
from pathlib import Path
from farhand import emit, flow, save_artifact, task

@task
def half(gate: str, number: int, before: int = 0) -> int:
    print(f"part {number} waits")
    while not Path(gate, str(number)).exists():
        time.sleep(0.02)
    emit(part=float(number))
    print(f"part {number} is done")
    return number

@flow
def halves(gate: str) -> int:
    first = half.submit(gate, 1)
    total = first.result() + half.submit(gate, 2, first).result()
    save_artifact(b"total\\n3\\n", name="total.csv")
    return total
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "halves.py").write_text(FLOWS)
    return project


def test_a_real_run_is_watched_from_its_start_to_its_result(
    tmp_path: Path, project: Path, open_page: OpenPage
) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    with deployed(tmp_path, project=project) as deployment:
        link = deployment.post("/signin-links", {"role": "admin"})["path"]
        page = open_page(f"{deployment.url}/{link}")
        run_id = deployment.start_run("halves", gate=str(gate))
        page.click("tbody >> text=halves", timeout=20_000)
        page.wait_for_selector("text=part 1 waits", timeout=20_000)
        assert "Running on server" in page.inner_text(".sentence")
        (gate / "1").touch()
        page.wait_for_selector("text=part 2 waits")
        (gate / "2").touch()
        page.wait_for_selector("text=Completed on server.", timeout=20_000)
        page.wait_for_selector("text=total.csv")
        page.wait_for_selector("figure >> text=part")
        nodes = page.locator(".graph a.node.completed")
        assert nodes.count() == 2
        nodes.nth(1).focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("tr:target >> text=half")
        texts = page.eval_on_selector_all("#log .line span", "spans => spans.map(s => s.textContent)")
        assert [text for text in texts if text.startswith("part")] == [
            "part 1 waits",
            "part 1 is done",
            "part 2 waits",
            "part 2 is done",
        ]
        assert deployment.run(run_id)["result"] == 3
        page.goto(f"{deployment.url}/workers")
        page.wait_for_selector(".pill.online")


def test_the_graph_of_a_declared_flow_is_there_before_its_nodes_and_follows_them(
    tmp_path: Path, project: Path, open_page: OpenPage
) -> None:
    wait = (
        "import os, time\ndef process(gate):\n    while not os.path.exists(gate):\n        time.sleep(0.02)\n"
        "    return 1\n"
    )
    document = {
        "inputs": ["gate"],
        "nodes": [
            {"id": "first", "type": "python", "source": wait, "requires": ["gate"], "provides": ["x"]},
            {
                "id": "then",
                "type": "python",
                "source": "def process(x): 1 / 0",
                "requires": ["x"],
                "provides": ["y"],
            },
            {"id": "last", "type": "python", "source": "def process(y): pass", "requires": ["y"]},
        ],
    }
    with deployed(tmp_path, project=project) as deployment:
        deployment.put("/flows/drawn", document)
        page = open_page(f"{deployment.url}/{deployment.post('/signin-links', {'role': 'admin'})['path']}")
        run_id = deployment.start_run("drawn", gate=str(tmp_path / "gate"))
        page.click("tbody >> text=drawn", timeout=20_000)
        page.wait_for_selector("#g-first.running", timeout=20_000)
        page.wait_for_selector("#g-last.waiting")
        (tmp_path / "gate").touch()
        page.wait_for_selector("#g-first.completed", timeout=20_000)
        page.wait_for_selector("#g-then.failed")
        page.wait_for_selector("#g-last.skipped")
        assert "ZeroDivisionError" in str(page.get_attribute("#g-then", "aria-label"))
        assert deployment.run(run_id)["state"] == "failed"
