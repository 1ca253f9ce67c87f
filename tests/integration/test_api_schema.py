"""What a filled server answers is what its OpenAPI document says: every field, and no other."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farhand.web.app import create_app
from tests.harness.deployment import Deployment, deployed, environment
from tests.harness.waiting import eventually

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="jsonschema_rs is absent: no schema is checked")

FLOWS = """
from farhand import Service, emit, every, flow, progress, save_artifact, task

@task(tags=["math"])
def double(n: int) -> int:
    emit(loss=1 / (n + 1))
    progress(n, 3, "parts")
    return 2 * n

@task
def odd(n: int) -> object:
    return {n}

@task(device="gpu")
def far(n: int) -> int:
    return n

@flow
def inner(n: int = 1) -> int:
    return double(n)

@flow(schedule=every("1h"), run_name="all of {n}")
def everything(n: int = 3) -> dict:
    parts = double.map(range(n)).result()
    odd(n)
    inner(2)
    progress(n, n)
    save_artifact(b"text", name="notes.txt")
    return {"parts": parts}

@flow
def failing() -> None:
    raise ValueError("no")

@flow(schedule=every(1))
def tick() -> None:
    pass

web = Service("web", command=["python", "-m", "http.server", "{port}"], health="/")

@flow(services=[web])
def waiting() -> int:
    return far(1)

if __name__ == "__main__":
    everything()
"""

UNCHECKED = {
    "/api/v1/workers/runtime": "a file",
    "/api/v1/workers/agent.pyz": "a file",
    "/api/v1/artifacts/{digest}": "a file",
    "/api/v1/stream": "it does not end",
    "/metrics": "text",
}
"""GET routes that answer no JSON."""

DOCUMENT = create_app(None).openapi()  # type: ignore[arg-type]
PATHS = [path for path, methods in DOCUMENT["paths"].items() if "get" in methods and path not in UNCHECKED]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, dict[str, list[str]]]]:
    """A server that has something of everything; and for each name in a path what to put there."""
    directory = tmp_path_factory.mktemp("filled")
    project = directory / "project"
    project.mkdir()
    (project / "flows.py").write_text(FLOWS)
    (project / "broken.py").write_text("import farhand\nimport nothing_such\n")
    with deployed(directory, project=project) as running:
        yield running, _fill(running, project)


def _fill(running: Deployment, project: Path) -> dict[str, list[str]]:
    env = environment(running.home, running.times)
    subprocess.run([sys.executable, str(project / "flows.py")], env=env, check=True, timeout=60)
    ended = [running.start_run("everything"), running.start_run("failing")]
    open_run = running.start_run("waiting")
    for run in ended:
        running.wait_for_run(run)
    eventually(lambda: running.get(f"/runs/{open_run}/why")["calls"], what="a call that waits")
    eventually(lambda: len(running.items("/runs")) >= 5, what="the script's run and the called flows'")
    tick = next(item["id"] for item in running.items("/schedules") if item["flow"] == "tick")
    eventually(lambda: running.items(f"/schedules/{tick}/fires"), what="a fire")
    running.post(f"/schedules/{tick}/pause")
    eventually(lambda: running.items("/services/web/logs"), what="what a service writes")
    token = running.post("/workers/tokens", {"name": "gpu1", "labels": ["gpu"]})
    revoked = running.post("/workers/tokens", {"name": "gpu2"})
    running.post(f"/workers/tokens/{revoked['jti']}/revoke")
    running.put("/secrets/db", {"value": "hunter2-hunter2"})
    running.put("/variables/limit", {"value": {"rows": 3}})
    running.put("/flavors/small", {"cpus": 1, "ram": "1G"})
    running.put(
        "/flows/put", {"nodes": [{"id": "a", "type": "python", "source": "def process():\n    pass\n"}]}
    )
    return {
        "versions": ["put"],
        "runs": [run["id"] for run in running.items("/runs")],
        "flows": ["everything", "failing"],
        "projects": [running.items("/projects")[0]["name"]],
        "schedules": [schedule["id"] for schedule in running.items("/schedules")],
        "workers": ["server"],
        "services": ["web"],
        "variables": ["limit"],
        "tokens": [token["jti"]],
    }


def strict(schema: Any) -> Any:
    """The schema with nothing allowed that it does not name, and nothing left out that it does."""
    if isinstance(schema, dict):
        schema = {name: strict(part) for name, part in schema.items()}
        if "properties" in schema and schema.get("type") == "object":
            schema |= {"additionalProperties": False, "required": list(schema["properties"])}
    elif isinstance(schema, list):
        schema = [strict(part) for part in schema]
    return schema


STRICT = strict(copy.deepcopy(DOCUMENT["components"]))


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_is_what_the_document_says(
    filled: tuple[Deployment, dict[str, list[str]]], path: str
) -> None:
    running, names = filled
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]
    schema = content["application/json"]["schema"]
    assert schema, "the document says nothing of this answer"
    validator = jsonschema_rs.Draft202012Validator({**strict(schema), "components": STRICT})
    nouns = path.removeprefix("/api/v1/").split("/")
    known = names.get(nouns[-1]) or names.get(nouns[0]) or [""]
    seen = 0
    for name in known if "{" in path else [""]:
        answer = running.client.get(f"{running.url}{re.sub('{.*?}', name, path)}").json()
        problems = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(answer)]
        assert problems == [], (path, name)
        seen += len(answer.get("items", [1]))
    assert seen, f"{path} had nothing to show"
